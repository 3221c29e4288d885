"""`python drive.py WORKSPACE BACKEND ARCHIVE [SHOWN]…`: a jail that this process's user opens, driven line by line.

The first line out is the runner's own, or {"unavailable": reason}; then each line in goes to it, one answer comes
back. It stands for the server: the environment and the descriptors that it was started with are the bait.
"""

from __future__ import annotations

import asyncio
import json
import sys

from agent.errors import FrogError
from agent.jail.session import open_session
from agent.jail.spec import JailSpec


async def drive(workspace: str, backend: str, archive: bytes, shown: list[str]) -> None:
    try:
        spec = JailSpec(workspace=workspace, read_only_paths=tuple(shown))
        session = await open_session(spec, archive, backend=backend)
    except FrogError as error:
        print(json.dumps({"unavailable": error.message}), flush=True)
        return
    line = b""
    while True:
        answer = await asyncio.wait_for(session.reader.readline(), 30)
        if not answer:
            print(json.dumps({"ended": session.stderr_tail(), "after": line.decode()}), flush=True)
            break
        print(answer.decode(), end="", flush=True)
        line = await asyncio.to_thread(sys.stdin.buffer.readline)
        if not line:
            break
        session.writer.write(line)
        await session.writer.drain()
    await session.close()


def main() -> None:
    workspace, backend, archive, *shown = sys.argv[1:]
    with open(archive, "rb") as file:
        data = file.read()
    asyncio.run(drive(workspace, backend, data, shown))


if __name__ == "__main__":
    main()
