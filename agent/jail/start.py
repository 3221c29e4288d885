"""Starts the launcher of backend A: its command line, what it inherits, and the order of its first messages."""

from __future__ import annotations

import marshal
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

import agent
from agent.errors import JailUnavailable
from agent.jail.channel import StatusChannel, StatusMessage, explain_failure
from agent.jail.groups import Group, GroupPlan, environment_for_scope
from agent.jail.interpreter import runner_executable
from agent.jail.landlock_plan import LandlockPlan
from agent.jail.plan import Plan
from agent.jail.traps import Traps, set_traps

START_TIMEOUT_S = 20.0

# Our own modules come last: nothing beside the package can stand in for the standard library.
_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from agent.jail.launcher.main import main; main(*map(int, sys.argv[2:]))"
)


class LauncherDiedError(JailUnavailable):
    """The launcher ended without a word on the status channel."""


@dataclass(slots=True)
class Launch:
    """A launcher that is about to start. `pass_fds` and `channel.child` are for the child only.

    `reduced` and `root` are those of `JailInfo`. `init` is the process whose end is the end of all jailed ones:
    PID 1 of the jail, or (`is_asked_to_end`) a supervisor that ends them first, and itself last.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    pass_fds: tuple[int, ...]
    channel: StatusChannel
    traps: Traps
    backend: str
    reduced: str | None = None
    root: str | None = None
    init: int | None = None
    view: int | None = None
    is_asked_to_end: bool = False
    ready: bool = False
    limits: list[str] = field(default_factory=list)
    wait_status: int | None = None

    def started(self) -> None:
        """The child has inherited what it needs: close our copies."""
        for number in self.pass_fds:
            if number != self.channel.child.fileno():
                os.close(number)
        self.channel.child.close()
        self.pass_fds = ()

    def take(self, message: StatusMessage | None) -> None:
        """Take the next message. Raises JailUnavailable where the jail cannot be had."""
        if message is None:
            if not self.ready:
                raise LauncherDiedError("the jail's launcher died", "`frog-lsp doctor` tries it again.")
            return
        if message.word == "INIT" and message.descriptors and self.init is None:
            self.init = message.descriptors[0]
        elif message.word == "VIEW" and message.descriptors and self.view is None:
            self.view = message.descriptors[0]
        elif message.word == "READY":
            if self.view is None:
                raise JailUnavailable("the jail started without a private view", "Please report this.")
            if not self.traps.untouched():
                raise JailUnavailable(
                    f"jail `{self.backend}` did not prove itself: a host file changed", "Please report this."
                )
            self.ready = True
            self.traps.close()
        elif message.word == "LIMIT":
            if message.text not in self.limits:
                self.limits.append(message.text)
        elif message.word == "EXIT":
            self.wait_status = int(message.text)
        elif message.word == "FAIL":
            raise explain_failure(message, self.backend)

    def kill(self) -> None:
        """Kill PID 1 of the jail, and with it everything in it; or ask the supervisor to do so."""
        if self.is_asked_to_end:
            self.channel.hang_up()
        elif self.init is not None:
            try:
                signal.pidfd_send_signal(self.init, signal.SIGKILL)
            except ProcessLookupError:
                return

    def close(self) -> None:
        """Release all descriptors. Idempotent."""
        if self.pass_fds:
            self.started()
        self.channel.close()
        self.traps.close()
        for number in (self.init, self.view):
            if number is not None:
                os.close(number)
        self.init = self.view = None


def prepare_launch(plan: Plan, runner: bytes, group: Group | None = None, how: GroupPlan | None = None) -> Launch:
    """Lay out the launcher of backend A, which joins the group, or starts in a scope. Raises JailUnavailable."""
    package_root = os.path.dirname(os.path.dirname(os.path.abspath(agent.__file__)))

    def command(numbers: Mapping[str, int]) -> tuple[str, ...]:
        of_launcher = (str(numbers[name]) for name in ("plan", "runner", "status"))
        return (*before, runner_executable(), "-I", "-S", "-c", _BOOT, package_root, *of_launcher)

    before = how.argv if how else ()
    launch = lay_out(plan, {"runner": runner}, command, {"group": os.dup(group.procs)} if group else None)
    if before:
        launch.environment |= environment_for_scope(os.environ)
    return launch


def lay_out(
    plan: Plan | LandlockPlan,
    contents: Mapping[str, bytes],
    command: Callable[[Mapping[str, int]], tuple[str, ...]],
    inherited: Mapping[str, int] | None = None,
) -> Launch:
    """Set the traps and lay out what a launcher inherits. Raises JailUnavailable.

    `command` is made from the numbers of the descriptors: one for each of `contents` by its name, those of
    `inherited` (ours from now on), "plan" and "status". The first two kinds are also in the plan, as "numbers".
    """
    numbers = dict(inherited or {})
    traps: Traps | None = None
    try:
        traps = set_traps()
        nonce = secrets.token_hex(16).encode()
        for name, data in contents.items():
            numbers[name] = _memory_file(name, data)
        wire = encode_plan(plan) | {"nonce": nonce, "traps": traps.described(), "numbers": dict(numbers)}
        # marshal needs no import in the launcher; only we write it, and only our own child reads it
        numbers["plan"] = _memory_file("plan", marshal.dumps(wire))
        channel = StatusChannel(nonce)
    except (OSError, JailUnavailable) as error:
        if traps is not None:
            traps.close()
        for number in numbers.values():
            os.close(number)
        if isinstance(error, JailUnavailable):
            raise
        raise JailUnavailable(
            f"the jail cannot be prepared: {error}", "Close programs, or raise their limits."
        ) from error
    numbers["status"] = channel.child.fileno()
    return Launch(
        command=command(numbers),
        environment={"LC_CTYPE": "C.UTF-8", "FROG_LSP_CANARY": traps.token},
        pass_fds=tuple(numbers.values()),
        channel=channel,
        traps=traps,
        backend=plan.backend,
    )


def _memory_file(name: str, data: bytes) -> int:
    number = os.memfd_create(name, os.MFD_CLOEXEC)
    with open(number, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(number, 0, os.SEEK_SET)
    return number


def encode_plan(plan: Plan | LandlockPlan) -> dict[str, object]:
    """The plan with bytes for paths and variables, as the launcher takes it."""
    as_they_are = {"rlimits": plan.rlimits, "seccomp": plan.seccomp}
    names = (f.name for f in fields(plan))
    return as_they_are | {name: _encode(getattr(plan, name)) for name in names if name not in as_they_are}


def _encode(value: object) -> object:
    if isinstance(value, str):
        return os.fsencode(value)
    if isinstance(value, (tuple, list)):
        return tuple(_encode(item) for item in value)
    return value
