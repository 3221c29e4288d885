"""A chat template is tried before it is used: that it comes to an end, knows tools, and writes calls as we read them.

What passes the trial may still misbehave with other conversations: whoever renders one later bounds that, too.
"""

from __future__ import annotations

import contextlib
import functools

from agent.model.chat_format import ChatFormat
from agent.model.template_process import CPU_S as TRIAL_CPU_S
from agent.model.template_process import TemplateProcess
from agent.types import Observation

__all__ = ["TRIAL_CPU_S", "try_template"]


@functools.lru_cache(maxsize=8)
def try_template(template: str | None) -> None:
    """Raises ModelFileError where the template cannot be used. Takes some tenths of a second, once a template."""
    if not template or not template.strip():
        ChatFormat(template)
        return
    with contextlib.closing(TemplateProcess(template)) as process:
        chat = ChatFormat(template, renderer=process)
        chat.prefix("S", [], "U")
        for n in (1, 3):
            chat.suffix([Observation(tool="Read", text="x")] * n)
