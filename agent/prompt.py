"""What the model is told: the system prompt, the issue, and the request for a summary.

Wording of our own, short: with the tools it stays under 900 tokens of the Qwen3.5 tokenizer. A user who has other
wording gives it in a file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from agent.errors import UsageError
from agent.types import Issue, JsonObject

SYSTEM_PROMPT = """\
You are a software engineer who fixes an issue in the project in {workspace}. You work alone: nobody answers questions.

Work with the tools. Paths are relative to the project folder, where Bash also starts. There is no network.
- First find and read the code that the issue is about, then reproduce the problem where you can.
- Change the cause, not the symptom, with the smallest change that is complete and in the style of the project.
- Do not change tests to make them pass, unless the issue is about the tests.
- Run the tests that concern your change, and remove files that you made only for trying things out.

When the work is done, reply without a tool call: say what was wrong and what you changed, in a few sentences.\
"""

SUMMARY_REQUEST = (
    "[The context window is nearly full. Call no tool now. Write a summary from which the work can go on, in at most "
    "{n_words} words, since everything else above will be gone: 1. the goal and its constraints; 2. what was found; "
    "3. the state of each file that was changed or matters; 4. commands that were run and their results; "
    "5. open points; 6. the next step.]"
)

_MAX_PROMPT_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFile:
    """The user's own wording. `tools` is None where the file gives the system prompt alone."""

    system: str
    tools: tuple[JsonObject, ...] | None = None


def system_prompt(workspace: str, wording: str = SYSTEM_PROMPT) -> str:
    """The system prompt for a workspace; every `{workspace}` in the wording becomes its path."""
    return wording.replace("{workspace}", workspace)


def user_prompt(issue: Issue, summary: str | None = None) -> str:
    """The first user turn: the issue as it is, and after a restart the model's own summary of its work."""
    text = issue.text.strip()
    if summary is None:
        return text
    return f"{text}\n\n[You have worked on this already. The files are as you left them. Your own summary:]\n{summary}"


def load_prompt_file(path: str) -> PromptFile:
    """Read `agent.promptFile`: plain text is the system prompt; a JSON object has `system` and, if given, `tools`
    (OpenAI function schemas). Raises UsageError."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_PROMPT_FILE_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the prompt file {path} cannot be read: {error}", "Check agent.promptFile.") from error
    if len(text) > _MAX_PROMPT_FILE_BYTES or not text.strip():
        raise UsageError(f"the prompt file {path} is empty or longer than 1 MiB", "Check agent.promptFile.")
    if not text.lstrip().startswith("{"):
        return PromptFile(system=text.strip())
    try:
        value = json.loads(text)
    except ValueError:
        return PromptFile(system=text.strip())  # a prompt that happens to begin with a brace
    system, tools = value.get("system"), value.get("tools")
    is_tools = tools is None or (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools))
    if not isinstance(system, str) or not is_tools:
        raise UsageError(
            f"the prompt file {path} needs a text under `system` and, if given, a list of objects under `tools`",
            "Check agent.promptFile.",
        )
    return PromptFile(system=system, tools=None if tools is None else tuple(tools))
