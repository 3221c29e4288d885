"""The test command on a state of the workspace, in a jail of its own that is thrown away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from agent.jail.session import JailSession, open_session
from agent.jail.spec import JailSpec
from agent.tools.bundle import runner_bundle
from agent.tools.host import ToolHost
from agent.types import ChangeSet, FileState, TestOutcome

TEST_TIMEOUT_S = 900.0

OnOpen = Callable[[Callable[[], Awaitable[None]]], None]
"""Gets what closes the jail, so that a cancelled run can close it at once."""


async def check(
    spec: JailSpec,
    backend: str,
    states: Mapping[str, FileState | None],
    command: str,
    on_open: OnOpen,
    timeout_s: float = TEST_TIMEOUT_S,
) -> TestOutcome:
    """Run `command` on the snapshot with `states` put in (None: no such path).

    Raises JailUnavailable and ToolRunnerDied.
    """
    session: JailSession = await open_session(spec, runner_bundle(), backend=backend)
    on_open(session.close)
    host = ToolHost(session.reader, session.writer)
    try:
        await host.start()
        if states:
            await host.seed(states)
        return await host.run_tests(command, timeout_s)
    finally:
        await host.close()
        await session.close()


def proposed_states(changes: ChangeSet) -> dict[str, FileState | None]:
    """The states of all paths after a proposal, without what can never be applied."""
    states: dict[str, FileState | None] = {}
    for change in changes.changes:
        if any(flag.level == "never" for flag in change.flags):
            continue
        if change.old_path is not None:
            states.setdefault(change.old_path, None)
        states[change.path] = change.after
    return states
