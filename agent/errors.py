"""The one tree of exceptions. Each has a stable `kind` and a `hint` that says what to do."""

from __future__ import annotations


def sentences(message: str, hint: str) -> str:
    """A message and its hint in one line, with a full stop between them."""
    if not hint:
        return message
    return f"{message} {hint}" if message.endswith((".", "!", "?", ":")) else f"{message}. {hint}"


class FrogError(Exception):
    """Base of all errors that a person may see.

    `kind` is the stable word of `--json`; `message` is one plain sentence; `hint` says what to do.
    """

    kind = "error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def in_one_line(self) -> str:
        """The message and the hint, as sentences."""
        return sentences(self.message, self.hint)


class UsageError(FrogError):
    """The request itself cannot be right (exit code 2)."""

    kind = "usage"


class StdoutError(FrogError):
    """The result cannot be written to stdout."""

    kind = "stdout"


class WorkspaceError(UsageError):
    """The workspace is missing, is `/` or the home folder, or is over a budget."""

    kind = "workspace"


class ModelUnavailable(FrogError):
    """The model cannot be opened, or its process died."""

    kind = "model_unavailable"


class ModelFileError(ModelUnavailable):
    """The file is no usable GGUF: truncated, of another kind, without a chat template or tools."""

    kind = "model_file"


class DownloadError(FrogError):
    """A model could not be downloaded, or what came is not what was promised."""

    kind = "download"


class ContextTooLarge(UsageError):
    """A context was asked for by hand that does not fit; `largest` does."""

    kind = "context_too_large"

    def __init__(self, message: str, hint: str = "", *, largest: int = 0) -> None:
        super().__init__(message, hint)
        self.largest = largest


class ContextOverflow(FrogError):
    """The conversation no longer fits the model's context."""

    kind = "context_overflow"


class ModelQueryError(FrogError):
    """A query failed though the model is there (an endpoint that answers rubbish, or 4xx)."""

    kind = "llm_query_error"


class JailUnavailable(FrogError):
    """Nothing ran: the jail could not be had or did not prove itself."""

    kind = "jail_unavailable"


class ToolRunnerDied(FrogError):
    """The jailed tool runner ended in mid-call."""

    kind = "tool_error"


class ProtocolError(FrogError):
    """A peer sent what is no frame, or no message of ours."""

    kind = "protocol"


class ConflictError(FrogError):
    """A change cannot be applied because the file changed meanwhile."""

    kind = "conflict"


class ResumeError(FrogError):
    """A trajectory cannot be gone on with: it had ended, or a call now has another outcome."""

    kind = "resume"


class ProposalError(FrogError):
    """No such run, or its proposal cannot be read."""

    kind = "proposal"
