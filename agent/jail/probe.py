"""Whether a backend can be had here, found out by doing it."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile

from agent.errors import FrogError, JailUnavailable
from agent.jail.backend import ProbeOutcome
from agent.jail.host import gather_host_facts
from agent.jail.leftovers import hold_folder
from agent.jail.namespaces import hold_disk_view
from agent.jail.plan import plan_namespaces
from agent.jail.spec import JailSpec
from agent.jail.start import START_TIMEOUT_S, Launch, prepare_launch

# Without user attributes an overlay mounts and then fails at exactly this.
_TRIAL = ("/bin/sh", "-c", "rm -rf d && mkdir d && : > d/new && test ! -e d/old && mv d e")


@functools.cache
def probe_namespaces() -> ProbeOutcome:
    """Start a whole jail, canaries included, on a workspace of our own. Remembered for this process."""
    return probe_namespaces_now()


def probe_namespaces_now() -> ProbeOutcome:
    """The same, anew."""
    with tempfile.TemporaryDirectory(prefix="frog-lsp-probe-") as folder:
        try:
            os.mkdir(os.path.join(folder, "d"))
            with open(os.path.join(folder, "d", "old"), "wb"):
                pass
            return _try(folder)
        except FrogError as error:
            return ProbeOutcome(usable=False, reason=error.message, hint=error.hint)
        except OSError as error:
            return ProbeOutcome(usable=False, reason=f"the probe could not be made: {error}")


def probe_files() -> ProbeOutcome:
    """Backend D needs a folder to write in and nothing else."""
    try:
        hold_folder("view").remove()
    except OSError as error:
        return ProbeOutcome(
            usable=False, reason=f"no private view can be made: {error}", hint="Free space in the cache folder."
        )
    return ProbeOutcome(usable=True)


def _try(folder: str) -> ProbeOutcome:
    disk_view = hold_disk_view()
    try:
        spec = JailSpec(workspace=os.path.realpath(folder))
        facts, _ = gather_host_facts(spec, disk_view=disk_view.path if disk_view else None)
        launch = prepare_launch(plan_namespaces(spec, facts, _TRIAL), b"")
        try:
            status = _run(launch)
        finally:
            launch.close()
    finally:
        if disk_view is not None:
            disk_view.remove()
    if status != 0:
        return ProbeOutcome(
            usable=False,
            reason="folders cannot be replaced in the private view (overlay without user attributes)",
            hint="Linux 5.11 or later with overlay `userxattr` is needed.",
        )
    return ProbeOutcome(usable=True)


def _run(launch: Launch) -> int | None:
    """Run a launch to its end, without asyncio. Raises JailUnavailable."""
    with subprocess.Popen(
        launch.command,
        env=launch.environment,
        pass_fds=launch.pass_fds,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            launch.started()
            launch.channel.socket.settimeout(START_TIMEOUT_S)
            while launch.wait_status is None:
                message = launch.channel.receive()
                launch.take(message)
                if message is None:
                    break
        except TimeoutError as error:
            raise JailUnavailable("the jail was not ready in time", "The machine may be overloaded.") from error
        finally:
            launch.kill()
            process.kill()
    return launch.wait_status
