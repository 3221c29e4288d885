"""The shell commands for what an edit of an editor cannot do. They run in the folder of the workspace."""

from __future__ import annotations

import shlex

from agent.types import FileChange


def mode_command(change: FileChange, relative: str) -> str | None:
    """What gives the file its executable bits, None where the change leaves them."""
    before = change.before.mode & 0o111 if change.before is not None else 0
    after = change.after.mode & 0o111 if change.after is not None else 0
    if before == after:
        return None
    return f"chmod {'+x' if after else '-x'} {_quoted(relative)}"


def mode_note(change: FileChange, relative: str) -> str:
    """What is left to do by hand once the text is in place, `""` for nothing."""
    command = mode_command(change, relative)
    return f"by hand: {command}" if command else ""


def chmod_command(change: FileChange, relative: str) -> str:
    """For a change of the mode alone."""
    assert change.after is not None
    return mode_command(change, relative) or f"chmod {change.after.mode:o} {_quoted(relative)}"


def link_command(change: FileChange, relative: str) -> str:
    """What makes the link that the change is; a file in place of a link takes the patch."""
    if change.after is None or change.after.link is None:
        return "a link became a file: apply the patch"
    return f"ln -sfn {_quoted(change.after.link)} {_quoted(relative)}"


def rename_command(old: str, new: str) -> str:
    """What moves the file."""
    return f"git mv {_quoted(old)} {_quoted(new)}"


def delete_command(relative: str) -> str:
    """What removes the file."""
    return f"rm {_quoted(relative)}"


def _quoted(word: str) -> str:
    """For a shell; a name that begins with a dash is no option."""
    return shlex.quote(f"./{word}" if word.startswith("-") else word)
