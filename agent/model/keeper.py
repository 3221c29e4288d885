"""One worker kept between runs, so that a model is loaded once: for the server; the command line needs none."""

from __future__ import annotations

import asyncio
import time

from agent.model.worker_process import WorkerProcess

IDLE_UNLOAD_S = 600.0
_LONGEST_WAIT_S = 30.0


class WorkerKeeper:
    """Lends one worker to one run at a time; another run waits its turn.

    Unused for `idle_unload_s` seconds, the worker ends. One that died is replaced, after a wait that doubles with
    each death in a row. `held_bytes` is what the kept model has of the memory. Make it inside the event loop.
    """

    def __init__(self, idle_unload_s: float = IDLE_UNLOAD_S) -> None:
        self.held_bytes = 0
        self._idle_unload_s = idle_unload_s
        self._turn = asyncio.Lock()
        self._worker: WorkerProcess | None = None
        self._idle: asyncio.Task[None] | None = None
        self._n_deaths = 0
        self._last_death_s = 0.0
        self._is_closed = False

    async def take(self) -> WorkerProcess:
        """Wait for the worker, start it where there is none. Raises ModelUnavailable."""
        await self._turn.acquire()
        try:
            self._stop_idling()
            worker, self._worker = self._worker, None
            if worker is not None and not worker.is_alive:
                await worker.kill()
                self._note_death()
                worker = None
            if worker is None:
                self.held_bytes = 0
                await asyncio.sleep(self._wait_s())
                worker = await WorkerProcess.start()
            return worker
        except BaseException:
            self._turn.release()
            raise

    async def give_back(self, worker: WorkerProcess) -> None:
        """Keep the worker for the next run. Never raises."""
        try:
            if worker.is_alive and self._is_closed:
                await worker.close()
            elif worker.is_alive:
                self._n_deaths = 0
                self._worker = worker
                self._idle = asyncio.create_task(self._unload_later(), name="unload the idle model")
            else:
                self._note_death()
                await worker.kill()
        finally:
            self._turn.release()

    async def close(self) -> None:
        """End the worker, now or when the run that has it gives it back. Idempotent; never raises."""
        self._is_closed = True
        self._stop_idling()
        await self._unload()

    async def _unload(self) -> None:
        worker, self._worker = self._worker, None
        self.held_bytes = 0
        if worker is not None:
            await worker.close()

    def _stop_idling(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    async def _unload_later(self) -> None:
        await asyncio.sleep(self._idle_unload_s)
        self._idle = None
        await self._unload()

    def _note_death(self) -> None:
        self._n_deaths += 1
        self._last_death_s = time.monotonic()
        self.held_bytes = 0

    def _wait_s(self) -> float:
        if self._n_deaths < 2:
            return 0.0
        wait_s = min(2.0 ** (self._n_deaths - 2), _LONGEST_WAIT_S)
        return max(0.0, self._last_death_s + wait_s - time.monotonic())
