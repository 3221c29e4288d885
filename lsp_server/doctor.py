"""`frog.doctor`: what a run needs, in lines for a person."""

from __future__ import annotations

from lsp_server.messages import DoctorResult
from lsp_server.session import Session


async def examine(session: Session) -> DoctorResult:
    """Look at trust, folders and settings."""
    lines: list[str] = []
    is_ok = True
    for folder in session.folders:
        reason = session.refusal(folder)
        is_ok = is_ok and reason is None
        lines.append(f"folder {folder.path}: " + (f"no runs, {reason}" if reason else "runs are allowed"))
    if not session.folders:
        is_ok = False
        lines.append("no folder is open: open the project's folder in the editor")
    lines += [f"settings: {problem}" for problem in session.settings.problems]
    return {"ok": is_ok, "lines": lines}
