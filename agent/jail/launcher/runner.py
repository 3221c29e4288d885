"""Becomes the runner without a second start of Python: what it will import is loaded while the jail is built.

The process is confined and proven before it takes a line of the runner, as one that would be executed. It keeps
the launcher's memory: no descriptor, no variable, and no secret that would outlive the start.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# What the runner takes from the standard library; a module that is missing here only costs time.
STANDARD_MODULES = ("json", "re", "signal", "typing", "binascii", "bisect", "errno", "fnmatch", "select")


def load_standard_modules() -> None:
    """Import them from the host, before this process is jailed; nothing of a workspace is on the path."""
    for name in STANDARD_MODULES:
        __import__(name)


def run_archive(plan: dict[str, Any]) -> NoReturn:
    """Run the archive of `plan["argv"]` (executable, -I, -S, archive, arguments) in this process, then exit."""
    arguments = [os.fsdecode(argument) for argument in plan["argv"][3:]]
    os.environ.clear()
    os.environb.update(plan["environment"])
    plan.clear()
    sys.argv = arguments
    sys.path[:] = [arguments[0], *(path for path in sys.path if not _is_our_package(path))]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("agent", "__main__")]:
        del sys.modules[name]
    sys.path_importer_cache.clear()
    code = 1
    try:
        _run_main(arguments[0])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        _flush()
        os._exit(code)


def _is_our_package(path: str) -> bool:
    return path == os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def _run_main(archive: str) -> None:
    from zipimport import zipimporter

    main = type(sys)("__main__")
    sys.modules["__main__"] = main
    code = zipimporter(archive).get_code("__main__")
    exec(code, main.__dict__)  # noqa: S102 - our own archive, as `python archive` does


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # nobody reads any more, or the runner closed it
