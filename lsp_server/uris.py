"""File URIs and paths. Clients spell one file in many ways; a path is the key, the client's string goes back."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote_to_bytes, urlsplit

_DRIVE = re.compile(r"^/[A-Za-z]:(?:/|$)")
_SAFE = "/~!$&'()*+,;=:@"


def scheme_of(uri: str) -> str:
    """The scheme in lower case, `""` where there is none."""
    head, colon, _ = uri.partition(":")
    return head.lower() if colon and head and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", head) else ""


def path_of(uri: str) -> str | None:
    """The absolute, normalised path of a `file:` URI; None for other schemes, other hosts and NUL.

    `%63` and `c`, both cases of hex digits, `.` and `..` give one path. Bytes that are not UTF-8 become
    surrogate escapes.
    """
    if scheme_of(uri) != "file":
        return None
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.netloc not in ("", "localhost"):
        return None
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if not path.startswith("/") or "\0" in path:
        return None
    if _DRIVE.match(path):
        path = "/" + path[1].lower() + path[2:]
    return os.path.normpath("/" + path.lstrip("/"))


def uri_of(path: str) -> str:
    """A `file:` URI of an absolute path."""
    return "file://" + quote(os.fsencode(path), safe=_SAFE)


def child_uri(folder_uri: str, relative: str) -> str:
    """The URI of a file below a folder whose URI the client gave: the client's spelling of the folder stays."""
    return folder_uri.rstrip("/") + "/" + quote(os.fsencode(relative), safe=_SAFE)


def relative_to(folder: str, path: str) -> str | None:
    """`path` relative to `folder`, posix, compared by components (`/a/repo` holds nothing of `/a/repo-2`).

    None where it is not below the folder.
    """
    if folder == "/":
        return path.lstrip("/") or None
    if not path.startswith(folder + "/"):
        return None
    return path[len(folder) + 1 :]


def is_at_or_below(path: str, top: str) -> bool:
    """Whether a path is that of a file or folder, or of something below it."""
    return path == top or path.startswith(top.rstrip("/") + "/")


def respelled(uri: str, below: str, new_top: str) -> str:
    """The URI of something at or below a file or folder that was renamed, whose new URI is `new_top`.

    `below` is the path below it, with its slash, or `""`. The client's spelling of that part stays.
    """
    if not below:
        return new_top
    n_parts = below.count("/")
    tail = uri.split("/")[-n_parts:]
    spelled = "/" + "/".join(tail)
    if os.fsdecode(unquote_to_bytes(spelled)) != below:  # spelled through `..` or doubled slashes
        spelled = quote(os.fsencode(below), safe=_SAFE)
    return new_top.rstrip("/") + spelled
