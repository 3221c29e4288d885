"""What the extension for VS Code has from the server is what the server says now."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent.types import ExitReason
from lsp_server.messages import COMMANDS
from lsp_server.protocol_ts import typescript
from lsp_server.settings import entries, schema

CLIENT = Path(__file__).parents[2] / "vscode-client"
ANSWERED_BY_THE_EXTENSION = {"review.ask", "client.appliesEdits"}
"""Settings of the server that the extension itself answers, so that its user has one thing less to set."""
OF_THE_EXTENSION = {"path", "interpreter", "importStrategy", "trace.server"}


def test_the_types_of_the_commands_are_current() -> None:
    made = (CLIENT / "src" / "protocol.ts").read_text()
    assert made == typescript(), "run `make vscode-schema`"
    for name in COMMANDS:
        assert f'"{name}": [' in made


def test_every_ending_of_a_run_has_its_words() -> None:
    words = (CLIENT / "src" / "core" / "endings.ts").read_text()
    assert set(re.findall(r'"([a-z_]+)"[:;]', words)) == {reason.value for reason in ExitReason}


@pytest.fixture
def manifest() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CLIENT / "package.json").read_text())
    return found


def test_the_settings_are_those_of_the_server(manifest: dict[str, Any]) -> None:
    properties = manifest["contributes"]["configuration"]["properties"]
    texts = json.loads((CLIENT / "package.nls.json").read_text())
    groups = schema()["properties"]
    expected = {f"frog.{key}" for key in {*entries(), *OF_THE_EXTENSION} - ANSWERED_BY_THE_EXTENSION}
    assert set(properties) == expected, "run `make vscode-schema`"
    for key, entry in entries().items():
        if key in ANSWERED_BY_THE_EXTENSION:
            continue
        own = properties[f"frog.{key}"]
        assert own.get("type") == entry.get("type"), key
        assert own.get("enum") == entry.get("enum"), key
        assert own["default"] == entry["default"], key
        assert texts[f"frog.{key}"] == entry["description"], key
        is_user_only = groups[key.partition(".")[0]].get("x-userOnly", False)
        assert (own["scope"] == "machine") == is_user_only, f"{key} decides what runs: never from a workspace"


def test_what_starts_a_program_is_never_taken_from_a_workspace(manifest: dict[str, Any]) -> None:
    properties = manifest["contributes"]["configuration"]["properties"]
    assert {properties[f"frog.{key}"]["scope"] for key in ("path", "interpreter", "importStrategy")} == {"machine"}
    assert manifest["capabilities"]["untrustedWorkspaces"]["supported"] == "limited"
    assert manifest["capabilities"]["virtualWorkspaces"]["supported"] is False


def test_the_commands_of_the_palette_are_not_those_of_the_server(manifest: dict[str, Any]) -> None:
    ids = {command["command"] for command in manifest["contributes"]["commands"]}
    assert ids
    assert ids.isdisjoint(COMMANDS), "the client registers the server's own"


def test_every_text_is_there_in_korean(manifest: dict[str, Any]) -> None:
    texts, korean = (json.loads((CLIENT / f"package.nls{part}.json").read_text()) for part in ("", ".ko"))
    assert set(korean) == set(texts), "a new setting of the server, too, is said in Korean"
    assert {key for key in texts if korean[key] == texts[key]} == {"displayName"}
    for key in texts:  # what a text leads to when it is pressed
        assert re.findall(r"\(command:[\w.]+\)", korean[key]) == re.findall(r"\(command:[\w.]+\)", texts[key]), key
    written = json.dumps(manifest)
    assert {key for key in texts if f"%{key}%" not in written} == set()
    assert written.count('"%') == len(texts), "each text has one place"


def test_every_page_of_the_walkthrough_is_there_in_korean(manifest: dict[str, Any]) -> None:
    (walkthrough,) = manifest["contributes"]["walkthroughs"]
    for step in walkthrough["steps"]:
        page = CLIENT / step["media"]["markdown"]
        korean = page.with_suffix(".nls.ko.md").read_text()
        names = [re.findall(r"`[^`]+`", text) for text in (page.read_text(), korean)]
        assert names[0] == names[1], page.name


def test_the_pictures_of_the_readme_are_there_and_say_what_they_show() -> None:
    pictures = re.findall(r"!\[([^]]*)]\(([^)]+)\)", (CLIENT / "README.md").read_text())
    assert {name for _, name in pictures} == {"media/proposal.png", "media/review.png"}
    for words, name in pictures:
        assert len(words) > 50, "what who cannot see it is told"
        assert (CLIENT / name).read_bytes().startswith(b"\x89PNG")
        assert (CLIENT / name).stat().st_size < 200_000, name
