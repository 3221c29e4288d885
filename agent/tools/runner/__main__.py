"""`python -I -S runner.pyz --root DIR [--upper DIR] [--scratch DIR] [--no-bash]`.

`--root` is the workspace at its own path. With `--upper` nothing there is written: changes go to that folder,
in the format of overlayfs. `--scratch` is one more private folder where the file tools may go (the jail's
own /tmp). Frames come on descriptor 0 and go out on 1.
"""

from __future__ import annotations

import os
import signal
import sys

from agent.ipc.framing import FrameError
from agent.tools.runner.events import Events
from agent.tools.runner.files import Tree
from agent.tools.runner.places import Places
from agent.tools.runner.processes import become_reaper, kill_tree
from agent.tools.runner.service import Service
from agent.tools.runner.view import CopyView, View


def main(arguments: list[str]) -> int:
    """Serve until the other side is gone; 0 then, 2 for arguments or frames that cannot be right."""
    frames_in, frames_out = _move_frames_away()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # a person's Ctrl-C is for the program outside, which then tells us
    options = _parse(arguments)
    if options is None:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    root, upper, scratch, has_bash = options
    os.chdir(root)
    become_reaper()
    tree = Tree(root)
    view = View(tree) if upper is None else CopyView(tree, Tree(upper))
    places = Places(root, view, scratch, View(Tree(scratch)) if scratch else None)
    try:
        Service(Events(frames_in, frames_out), places, view, has_bash=has_bash).serve()
    except FrameError as error:
        sys.stderr.write(f"the runner got what is no message: {error}\n")
        return 2
    except BrokenPipeError:
        return 0
    finally:
        if has_bash:
            kill_tree()
    return 0


def _move_frames_away() -> tuple[int, int]:
    """Nothing that is printed or read by mistake may touch the frames: 0 becomes /dev/null, 1 becomes stderr."""
    frames_in, frames_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return frames_in, frames_out


def _parse(arguments: list[str]) -> tuple[str, str | None, str | None, bool] | None:
    values: dict[str, str] = {}
    has_bash = True
    left = arguments[::-1]
    while left:
        name = left.pop()
        if name == "--no-bash":
            has_bash = False
        elif name in ("--root", "--upper", "--scratch") and left:
            values[name] = left.pop()
        else:
            return None
    root = values.get("--root", "")
    if not os.path.isabs(root):
        return None
    return os.path.normpath(root), values.get("--upper"), values.get("--scratch"), has_bash and "--upper" not in values


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
