"""What the client can do, resolved once from `initialize`, and what the server says of itself.

Reads plain JSON and imports no LSP types: `initialize` is answered before they are loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lsp_server.messages import COMMANDS
from lsp_server.positions import ENCODINGS, Encoding

CODE_ACTION_KINDS = ("quickfix", "refactor.rewrite")
TAG_LLM_GENERATED = 1  # CodeActionTag of LSP 3.18
FILE_OPERATIONS = ("didCreate", "didRename", "didDelete", "willRename")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The client's capabilities as far as we use them. Whatever is malformed counts as absent."""

    encoding: Encoding = "utf-16"
    apply_edit: bool = False
    document_changes: bool = False
    resource_operations: frozenset[str] = frozenset()
    show_document: bool = False
    work_done_progress: bool = False
    code_action_literals: bool = False
    disabled_actions: bool = False
    llm_tag: bool = False
    configuration: bool = False
    configuration_registration: bool = False
    watched_files_registration: bool = False
    relative_patterns: bool = False
    file_operations: frozenset[str] = frozenset()
    """Those of FILE_OPERATIONS that the client tells of."""
    code_lens: bool = False
    code_lens_refresh: bool = False
    text_document_content: bool = False
    """Whether the client shows virtual documents of a provider that registers itself."""
    client_name: str = ""


def dig(value: Any, *keys: str) -> Any:
    """The value under nested keys, None where any is missing or no object."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _words(value: Any) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def resolve(params: Any) -> Capabilities:
    """Read the parameters of `initialize`.

    A client that lists resource operations handles document changes even if it does not say so: Neovim 0.11
    (measured with 0.11.4) announces the first and not the second. ALE (3.3) says that it applies no edits, and does:
    the setting `client.appliesEdits` says so, in `initializationOptions` alone.
    """
    caps = dig(params, "capabilities")
    offered = _words(dig(caps, "general", "positionEncodings"))
    operations = frozenset(_words(dig(caps, "workspace", "workspaceEdit", "resourceOperations")))
    tags = dig(caps, "textDocument", "codeAction", "tagSupport", "valueSet")
    content = dig(caps, "workspace", "textDocumentContent")
    name = dig(params, "clientInfo", "name")
    return Capabilities(
        encoding=next((e for o in offered for e in ENCODINGS if e == o), "utf-16"),
        apply_edit=dig(caps, "workspace", "applyEdit") is True
        or dig(params, "initializationOptions", "client", "appliesEdits") is True,
        document_changes=dig(caps, "workspace", "workspaceEdit", "documentChanges") is True or bool(operations),
        resource_operations=operations,
        show_document=dig(caps, "window", "showDocument", "support") is True,
        work_done_progress=dig(caps, "window", "workDoneProgress") is True,
        code_action_literals=dig(caps, "textDocument", "codeAction", "codeActionLiteralSupport") is not None,
        disabled_actions=dig(caps, "textDocument", "codeAction", "disabledSupport") is True,
        llm_tag=isinstance(tags, list) and TAG_LLM_GENERATED in tags,
        configuration=dig(caps, "workspace", "configuration") is True,
        configuration_registration=dig(caps, "workspace", "didChangeConfiguration", "dynamicRegistration") is True,
        watched_files_registration=dig(caps, "workspace", "didChangeWatchedFiles", "dynamicRegistration") is True,
        relative_patterns=dig(caps, "workspace", "didChangeWatchedFiles", "relativePatternSupport") is True,
        file_operations=frozenset(
            name for name in FILE_OPERATIONS if dig(caps, "workspace", "fileOperations", name) is True
        ),
        code_lens=isinstance(dig(caps, "textDocument", "codeLens"), dict),
        code_lens_refresh=dig(caps, "workspace", "codeLens", "refreshSupport") is True,
        text_document_content=isinstance(content, dict) and content.get("dynamicRegistration") is not False,
        client_name=name if isinstance(name, str) else "",
    )


def initialize_result(capabilities: Capabilities, version: str) -> dict[str, Any]:
    """The answer to `initialize`."""
    workspace: dict[str, Any] = {"workspaceFolders": {"supported": True, "changeNotifications": True}}
    if capabilities.file_operations:
        filters = {"filters": [{"scheme": "file", "pattern": {"glob": "**"}}]}
        workspace["fileOperations"] = {
            name: filters for name in FILE_OPERATIONS if name in capabilities.file_operations
        }
    return {
        "capabilities": {
            "positionEncoding": capabilities.encoding,
            "textDocumentSync": {"openClose": True, "change": 2, "save": {"includeText": False}},
            "codeActionProvider": {"codeActionKinds": list(CODE_ACTION_KINDS), "resolveProvider": False},
            "executeCommandProvider": {"commands": list(COMMANDS)},
            "workspace": workspace,
            **({"codeLensProvider": {"resolveProvider": False}} if capabilities.code_lens else {}),
        },
        "serverInfo": {"name": "frog-lsp", "version": version},
    }
