"""Files made, moved and removed through the client, each in an edit of its own, and seen to be so afterwards."""

from __future__ import annotations

from agent.types import FileChange
from lsp_server.apply.by_hand import mode_note
from lsp_server.apply.delivery import Delivery, Letter, until
from lsp_server.apply.now import is_there, make_folder_of
from lsp_server.apply.outcomes import Outcomes
from lsp_server.apply.plan import MovePlan, TextPlan
from lsp_server.edits import create_edit, delete_edit, first_text, rename_edit
from lsp_server.session import read_file

CREATED_WAIT_S = 0.3
"""How long we look for what the client says that it made, moved or removed."""


async def make(change: FileChange, plan: TextPlan, delivery: Delivery, outcomes: Outcomes) -> Letter | None:
    """Make an empty file; the letter with its text, None where it is settled."""
    path = plan.now.path
    reason = await delivery.send(create_edit(plan.now.uri), f"FrogNano: create {plan.now.relative}")
    if reason is not None:
        outcomes.settle(change, "rejected", reason)
        return None
    if not await until(lambda: is_there(path), CREATED_WAIT_S):
        # With these options Neovim 0.11 makes a buffer and no file; without the folder it could not be saved.
        make_folder_of(path)
    if read_file(path):
        outcomes.settle(change, "conflict", "somebody made the file meanwhile, with another content")
        return None
    letter = Letter.of(change, plan, first_text(plan.target))
    letter.is_open, letter.version = False, None
    if plan.target:
        return letter
    if is_there(path) or delivery.buffer(letter) is not None:
        outcomes.settle(change, "applied", mode_note(change, plan.now.relative))
    else:
        outcomes.settle(change, "unconfirmed", "the editor says that it made the file, but it is not there yet")
    return None


async def move(change: FileChange, plan: MovePlan, delivery: Delivery, outcomes: Outcomes) -> None:
    """Rename or delete a file."""
    old, new = plan.old, plan.new
    if new is None:
        reason = await delivery.send(delete_edit(old.uri), f"FrogNano: delete {old.relative}")
        is_done = await until(lambda: not is_there(old.path), CREATED_WAIT_S)
        verb = "delete"
    else:
        make_folder_of(new.path)  # Helix 25.01 moves no file into a folder that is not there
        reason = await delivery.send(rename_edit(old.uri, new.uri), f"FrogNano: rename {old.relative}")
        is_done = await until(lambda: is_there(new.path) and not is_there(old.path), CREATED_WAIT_S)
        verb = "rename"
    if is_done:
        outcomes.settle(change, "applied")
    else:
        outcomes.settle(change, "rejected", reason or f"the editor did not {verb} the file")
