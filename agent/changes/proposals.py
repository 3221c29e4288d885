"""Proposals: what a run leaves until a person has decided, as files in the user's state folder.

One folder a run, `runs/<run id>/proposal.json`: it survives restarts of every process, is for this user alone
(0600 in 0700), and is replaced as a whole, so that a crash leaves the old one or the new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from agent.changes.proposal import Proposal, ProposalState
from agent.changes.proposal_json import FORMAT, proposal_from_json, proposal_to_json
from agent.config import make_private_dir, state_dir
from agent.errors import FrogError, ProposalError

__all__ = ["FORMAT", "KEEP_DAYS", "Proposal", "ProposalState", "ProposalStore"]

KEEP_DAYS = 30.0
"""How long proposals are kept where the setting `state.keepDays` says nothing."""

LOCK_TIMEOUT_S = 10.0

_FILE = "proposal.json"
_LIST_HINT = "`frog-lsp runs` lists what is kept."


class UnreadableError(ProposalError):
    """The file of a proposal is gone, damaged, or of another version."""


@dataclass(frozen=True, slots=True)
class ProposalStore:
    """The proposals in a state folder (None: the user's own)."""

    folder: Path | None = None

    @property
    def runs(self) -> Path:
        """The folder with one folder a run. It may not exist yet."""
        return (self.folder or state_dir()) / "runs"

    def save(self, proposal: Proposal) -> Path:
        """Keep the proposal, in place of an earlier state of it. Raises ProposalError when the disk is full."""
        name = _checked(proposal.run_id)
        data = json.dumps(proposal_to_json(proposal), separators=(",", ":")).encode("ascii")
        try:
            make_private_dir(self.runs.parent)
            folder = make_private_dir(make_private_dir(self.runs) / name)
            _replace_file(folder, data)
        except (OSError, FrogError) as error:
            reason = error.strerror or str(error) if isinstance(error, OSError) else error.message
            raise ProposalError(
                f"The proposal of run {proposal.run_id} could not be kept: {reason}.",
                f"Make room in {self.runs}, or set XDG_STATE_HOME to a folder that has some.",
            ) from error
        return folder / _FILE

    def load(self, run_id: str) -> Proposal:
        """The proposal of a run, by its id or the beginning of it. Raises ProposalError with what to do."""
        return self._read(self.find(run_id))

    def find(self, run_id: str) -> str:
        """The whole id of a run whose id begins so. Raises ProposalError for none and for several."""
        names = self._names()
        if run_id in names:
            return run_id
        found = [name for name in names if run_id and name.startswith(run_id)]
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(sorted(found)[:5])
            raise ProposalError(f"Several runs begin with {run_id}: {shown}.", "Give more characters of the id.")
        raise ProposalError(f"There is no proposal of a run {run_id!r}.", _LIST_HINT)

    def list(self) -> Sequence[Proposal]:
        """All proposals that can be read, the newest first."""
        proposals = []
        for name in self._names():
            with contextlib.suppress(ProposalError):
                proposals.append(self._read(name))
        return sorted(proposals, key=lambda proposal: (-proposal.created_s, proposal.run_id))

    def update(self, run_id: str, step: Callable[[Proposal], Proposal]) -> Proposal:
        """Take a step of a run's proposal as it is on disk now, alone; the proposal after it.

        Raises ProposalError, and whatever the step raises.
        """
        with self.lock(run_id) as name:
            after = step(self._read(name))
            self.save(after)
        return after

    def discard(
        self, run_id: str, files: Collection[str] | None = None, hunks: Collection[int] | None = None
    ) -> Proposal | None:
        """Take these files and hunks out of a proposal; with neither, forget all of it: its line stays.

        A proposal that cannot be read is removed: None. Raises ProposalError where there is none, UsageError for
        files and hunks that are not there or in place already.
        """
        try:
            return self.update(run_id, lambda proposal: proposal.with_discarded(files, hunks))
        except UnreadableError:
            if files is not None or hunks is not None:
                raise
            self.delete(run_id)
            return None

    def delete(self, run_id: str) -> None:
        """Remove all that is kept of the run's proposal, readable or not. Raises ProposalError."""
        shutil.rmtree(self.runs / self.find(run_id), ignore_errors=True)

    def forget(self, *, older_than_days: float = KEEP_DAYS) -> int:
        """Remove proposals older than this, and what is left of half-written ones; how many there were."""
        oldest_s = time.time() - older_than_days * 86_400
        n_removed = 0
        for name in self._names():
            try:
                created_s = self._read(name).created_s
            except ProposalError:
                created_s = _changed_s(self.runs / name)
            if created_s <= oldest_s:
                shutil.rmtree(self.runs / name, ignore_errors=True)
                n_removed += 1
        return n_removed

    @contextlib.contextmanager
    def lock(self, run_id: str) -> Iterator[str]:
        """Hold a run's proposal for one process while it is read, applied and saved; gives the whole id.

        Raises ProposalError when another process holds it for longer than LOCK_TIMEOUT_S.
        """
        name = self.find(run_id)
        try:
            with FileLock(self.runs / name / "lock", timeout=LOCK_TIMEOUT_S, mode=0o600):
                yield name
        except Timeout as error:
            raise ProposalError(
                f"Run {name} is being applied by another frog-lsp process.", "Wait for it to end and try again."
            ) from error

    def _names(self) -> Sequence[str]:
        try:
            return [name for name in os.listdir(self.runs) if not name.startswith(".")]
        except OSError:
            return []

    def _read(self, name: str) -> Proposal:
        path = self.runs / name / _FILE
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                info = os.fstat(descriptor)
                if not stat.S_ISREG(info.st_mode) or os.geteuid() not in (info.st_uid, 0):
                    raise ValueError("not a file of this user")
                proposal = proposal_from_json(json.loads(file.read()))
                if proposal.run_id != name:
                    raise ValueError("the proposal of another run")
                return proposal
        except FileNotFoundError as error:
            raise UnreadableError(f"The proposal of run {name} is gone.", _LIST_HINT) from error
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise UnreadableError(
                f"The proposal of run {name} cannot be read: {path} is damaged or of another version.",
                f"Run the fix again; `frog-lsp discard {name}` removes it.",
            ) from error


def _checked(run_id: str) -> str:
    if not run_id or run_id.startswith(".") or "/" in run_id or "\0" in run_id:
        raise ProposalError(f"{run_id!r} is no id of a run.", _LIST_HINT)
    return run_id


def _changed_s(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return time.time()


def _replace_file(folder: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=".proposal.", dir=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, folder / _FILE)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
