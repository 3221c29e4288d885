"""What a jail is asked to be: the workspace, the limits, and what is refused before anything starts."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from agent.errors import UsageError, WorkspaceError

MIB = 1024 * 1024
GIB = 1024 * MIB

_UNITS = {"": 1, "K": 1024, "M": MIB, "G": GIB, "T": 1024 * GIB}

# Folders and files of a home whose content is a secret by itself, or opens a door when it is changed.
PROTECTED_IN_HOME = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".pypirc",
    ".npmrc",
    ".password-store",
    ".mozilla",
    ".thunderbird",
    ".config/autostart",
    ".config/chromium",
    ".config/frog-lsp",
    ".config/gcloud",
    ".config/gh",
    ".config/git",
    ".config/google-chrome",
    ".config/systemd",
    ".local/share/keyrings",
    "Library/Keychains",
    "Library/Application Support",
)

_SYSTEM_FOLDERS = (
    *("/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/run", "/sbin", "/srv"),
    *("/tmp", "/usr", "/var", "/Users"),  # noqa: S108
)
_KERNEL_FOLDERS = ("/proc", "/sys")
_PROTECTED_SYSTEM = ("/etc", "/proc", "/sys", "/dev", "/run", "/boot", "/var/run", "/var/lib/docker")


@dataclass(frozen=True, slots=True, kw_only=True)
class JailLimits:
    """What a run may use at most. The defaults leave a laptop usable.

    `view_bytes` and `view_inodes` bound what may be changed in the workspace, `scratch_bytes` the home,
    the temporary folder and shared memory together; all of them live in memory where the kernel can.
    `copy_bytes` and `copy_files` bound the private copy of a workspace that no overlay can be made over.
    `memory_bytes` bounds the memory of all processes together. `output_bytes` bounds what a single command may
    print (the Bash tool keeps 30,000 characters, whatever comes). `wall_s` bounds the whole life of the jail.
    """

    processes: int = 512
    memory_bytes: int = 4 * GIB
    file_bytes: int = 1 * GIB
    view_bytes: int = 1 * GIB
    view_inodes: int = 200_000
    scratch_bytes: int = 1 * GIB
    copy_bytes: int = 4 * GIB
    copy_files: int = 200_000
    open_files: int = 1024
    output_bytes: int = 1 * GIB
    cpu_s: int = 3600
    wall_s: int = 4 * 3600

    def with_limit(self, text: str) -> JailLimits:
        """These limits with one of them set by `NAME=VALUE`.

        A name may be written without its unit and with dashes; sizes take K, M, G, T. Raises UsageError.
        """
        name, equals, value = text.partition("=")
        names = {known: known for known in (f.name for f in fields(self))}
        names |= {known.removesuffix("_bytes").removesuffix("_s"): known for known in names}
        known = names.get(name.strip().lower().replace("-", "_"))
        if known is None or not equals:
            raise UsageError(
                f"--limit {text!r} is not NAME=VALUE with a known name",
                "Names: " + ", ".join(f.name for f in fields(self)) + ".",
            )
        return replace(self, **{known: _parse_amount(text, value.strip(), is_size=known.endswith("_bytes"))})

    def described(self) -> str:
        """All of them in one line, as a person reads them: `processes 512, memory 4 GiB, …`."""
        return ", ".join(_described(f.name, getattr(self, f.name)) for f in fields(self))


def _described(name: str, value: int) -> str:
    words = name.replace("_", " ")
    if name.endswith("_bytes"):
        unit, size = next((unit, size) for unit, size in (("GiB", GIB), ("MiB", MIB), ("bytes", 1)) if value >= size)
        return f"{words.removesuffix(' bytes')} {value / size:g} {unit}"
    return f"{words.removesuffix(' s')} {value:,} s" if name.endswith("_s") else f"{words} {value:,}"


def parse_limits(texts: Iterable[str]) -> JailLimits:
    """The default limits with each `NAME=VALUE` of `--limit` applied in order. Raises UsageError."""
    limits = JailLimits()
    for text in texts:
        limits = limits.with_limit(text)
    return limits


def _parse_amount(text: str, value: str, *, is_size: bool) -> int:
    digits, unit = value, ""
    if is_size:
        upper = value.upper().removesuffix("B").removesuffix("I")
        if upper[-1:] in _UNITS:
            digits, unit = upper[:-1], upper[-1:]
        else:
            digits = upper
    else:
        digits = value.lower().removesuffix("s")
    if not digits.isascii() or not digits.isdigit() or not 0 < int(digits) * _UNITS[unit] < 2**62:
        raise UsageError(
            f"--limit {text!r}: the value must be a whole number from 1 to 2^62", "For example memory_bytes=512M."
        )
    return int(digits) * _UNITS[unit]


@dataclass(frozen=True, slots=True, kw_only=True)
class JailSpec:
    """What to jail.

    `python` is the interpreter of the project (None: `.venv` in the workspace, else the one that runs
    frog-lsp). `read_only_paths` are absolute paths that are visible in the jail besides the system's own.
    """

    workspace: str
    read_only_paths: tuple[str, ...] = ()
    python: str | None = None
    limits: JailLimits = JailLimits()

    def checked(self) -> JailSpec:
        """The same with resolved paths. Raises WorkspaceError or UsageError for what must not be jailed."""
        workspace = checked_workspace(self.workspace)
        paths = tuple(_checked_read_only(path) for path in self.read_only_paths)
        python = self.python and os.path.abspath(os.path.expanduser(self.python))
        if python and not os.access(python, os.X_OK):
            raise UsageError(f"the interpreter {python} cannot be run", "Choose another `python` in the settings.")
        return replace(self, workspace=workspace, read_only_paths=paths, python=python)


def checked_workspace(path: str) -> str:
    """The real path of a workspace. Raises WorkspaceError where it is missing or too much."""
    if not path:  # it would be the current folder: rather a variable that is not set
        raise WorkspaceError("the workspace has no name", "Name a folder that exists.")
    real = os.path.realpath(os.path.expanduser(path))
    try:
        info = os.stat(real)
    except OSError as error:
        raise WorkspaceError(
            f"the workspace {path} cannot be opened: {error.strerror}", "Name a folder that exists."
        ) from error
    if not stat.S_ISDIR(info.st_mode):
        raise WorkspaceError(f"the workspace {path} is not a folder", "Name the folder of the project.")
    hint = "Name the folder of one project."
    if real == "/":
        raise WorkspaceError("the workspace is / : that is the whole machine", hint)
    if real in _SYSTEM_FOLDERS or any(is_within(real, folder) for folder in _KERNEL_FOLDERS):
        raise WorkspaceError(f"the workspace {real} is a folder of the system", hint)
    for home in home_folders(info.st_uid):
        if real == home:
            raise WorkspaceError(f"the workspace {real} is a home folder", hint)
        if is_within(home, real):
            raise WorkspaceError(f"the workspace {real} contains the home folder {home}", hint)
        for protected in protected_paths(home):
            if is_within(protected, real) or is_within(real, protected):
                raise WorkspaceError(f"the workspace {real} would show {protected}, which is protected", hint)
    return real


def _checked_read_only(path: str) -> str:
    expanded = os.path.expanduser(path)
    if not os.path.isabs(expanded):
        raise UsageError(f"the read-only path {path} is not absolute", "Name it from / or from ~.")
    real = os.path.realpath(expanded)
    if not os.path.lexists(real):
        raise UsageError(f"the read-only path {path} does not exist", "Remove it from jail.readOnlyPaths.")
    if not (os.path.isdir(real) or os.path.isfile(real)):
        raise UsageError(f"the read-only path {path} is no folder and no file", "Somebody may serve behind it.")
    if reason := refusal_to_show(real):
        raise UsageError(f"the read-only path {path} is refused: {reason}", "Name a smaller folder.")
    return real


def refusal_to_show(real: str) -> str | None:
    """Why a resolved path must not be visible in a jail, or None."""
    if real == "/":
        return "it is the whole machine"
    if any(is_within(real, folder) or is_within(folder, real) for folder in _PROTECTED_SYSTEM):
        return "it belongs to the running system"
    for home in home_folders(_own_uid()):
        if is_within(home, real):
            return f"it contains the home folder {home}"
        for protected in protected_paths(home):
            if is_within(protected, real) or is_within(real, protected):
                return f"{protected} is protected"
    return None


def home_folders(owner: int) -> tuple[str, ...]:
    """The real homes of this user and of the owner of the workspace, without those that are `/`."""
    homes = [os.environ.get("HOME", ""), *_homes_by_account(owner)]
    real = (os.path.realpath(home) for home in homes if os.path.isabs(home))
    return tuple(dict.fromkeys(home for home in real if home != "/"))


def _own_uid() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0  # native Windows has none


def _homes_by_account(owner: int) -> list[str]:
    try:
        import pwd
    except ImportError:  # native Windows has no accounts of this kind
        return [os.path.expanduser("~")]
    homes = []
    for uid in (os.getuid(), owner):
        try:
            homes.append(pwd.getpwuid(uid).pw_dir)
        except KeyError:
            continue
    return homes


def protected_paths(home: str) -> tuple[str, ...]:
    """The protected places of a home, whether they exist or not; links resolved."""
    return tuple(os.path.realpath(os.path.join(home, name)) for name in PROTECTED_IN_HOME)


def is_within(path: str, folder: str) -> bool:
    """True where `path` is `folder` or lies below it (both resolved)."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
