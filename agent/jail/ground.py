"""What a jail needs on the host while it lives: a folder for the changes, or a private copy of the workspace."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.errors import JailUnavailable, WorkspaceError
from agent.jail.groups import Group, GroupPlan, make_group
from agent.jail.leftovers import Held, hold_folder, hold_unrevealing_folder
from agent.jail.plan import HostFacts
from agent.jail.spec import JailSpec
from agent.worktree.copying import CopyBudget, PrivateCopy, copy_tree
from agent.worktree.mounts import mounts_below


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Held until `remove`. `layers` is a folder for the layers of an overlay, `copy` a whole copy.

    Without either the changes live in memory. `group` holds its processes together, where there is one. `notes` say
    what a person should know of a copy.
    """

    held: Held | None = None
    copy: PrivateCopy | None = None
    group: Group | None = None

    @property
    def layers(self) -> str | None:
        """The folder for the upper and the work layer."""
        return self.held.path if self.held and self.copy is None else None

    @property
    def copied(self) -> dict[str, tuple[int, int]] | None:
        """What `PrivateView.copied` says."""
        return self.copy.index if self.copy else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be copied."""
        if self.copy is None or not self.copy.left_out:
            return ()
        some = ", ".join(self.copy.left_out[:3]) + (", …" if len(self.copy.left_out) > 3 else "")
        return (f"{len(self.copy.left_out)} entries of the workspace are not in the private copy: {some}.",)

    def remove(self) -> None:
        """Remove all of it. Never raises."""
        if self.group is not None:
            self.group.remove()
        if self.held is not None:
            self.held.remove()


def can_have_overlay(spec: JailSpec, facts: HostFacts) -> bool:
    """False where an overlay over the workspace is known to fail, or its files could not be changed in it.

    An ordinary user has one identity in the jail: the overlay cannot copy up what belongs to another user or group.
    """
    is_ours = facts.uid == 0 or (facts.owner_uid, facts.owner_gid) == (facts.uid, facts.gid)
    return is_ours and not mounts_below(spec.workspace)


def hold_layers() -> Ground:
    """A folder for the layers of an overlay. Raises JailUnavailable."""
    return Ground(held=_hold(hold_folder))


def hold_visible_layers() -> Ground:
    """The same where the jail's mount table has their paths. Raises JailUnavailable."""
    return Ground(held=_hold(hold_unrevealing_folder))


async def hold_copy(spec: JailSpec, bound_over: tuple[str, ...] = (), owner: tuple[int, int] | None = None) -> Ground:
    """A private copy of the workspace of a checked spec, without those of `bound_over` in it.

    `owner` (uid, gid) is for root: all of the copy belongs to it.

    Raises JailUnavailable where the workspace is over the budget, or cannot be copied.
    """
    held = _hold(hold_unrevealing_folder)  # the mount table of the jail has its path
    stop = threading.Event()
    budget = CopyBudget(size_bytes=spec.limits.copy_bytes, entries=spec.limits.copy_files)
    above = spec.workspace + "/"
    skipped = frozenset(path.removeprefix(above) for path in bound_over if path.startswith(above))
    work = asyncio.create_task(
        asyncio.to_thread(
            copy_tree, spec.workspace, os.path.join(held.path, "copy"), budget, skipped, owner, stop.is_set
        )
    )
    try:
        return Ground(held=held, copy=await asyncio.shield(work))
    except BaseException as error:
        stop.set()
        await asyncio.gather(work, return_exceptions=True)
        held.remove()
        if isinstance(error, WorkspaceError):
            raise JailUnavailable(error.message, error.hint) from error
        if isinstance(error, OSError):
            raise JailUnavailable(
                f"the workspace cannot be copied: {error}", "Free space in the cache folder."
            ) from error
        raise


def with_group(ground: Ground, plan: GroupPlan) -> Ground:
    """The same with the control group of a plan; where that cannot be made any more, the watchdog is alone."""
    try:
        return replace(ground, group=make_group(plan))
    except OSError:
        return ground


def refuse_servers(folders: tuple[str, ...]) -> None:
    """Look for sockets and pipes in folders that are bound as they are: a read-only mount closes neither.

    Raises JailUnavailable for the first one, and where a folder cannot be looked through.
    """
    hint = "Remove it, or take its folder out of jail.readOnlyPaths."
    todo = [folder for folder in folders if os.path.isdir(folder)]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    elif not (entry.is_symlink() or entry.is_file(follow_symlinks=False)):
                        raise JailUnavailable(f"{entry.path}, which this jail would show, is a socket or a pipe", hint)
        except (PermissionError, FileNotFoundError):
            continue  # jailed processes cannot enter it either, or it went meanwhile
        except OSError as error:
            raise JailUnavailable(f"what this jail would show cannot be looked through: {error}", hint) from error


def _hold(hold: Callable[[str], Held]) -> Held:
    try:
        return hold("view")
    except OSError as error:
        raise JailUnavailable(f"no private view can be made: {error}", "Free space in the cache folder.") from error
