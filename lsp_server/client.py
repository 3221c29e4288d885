"""What we ask and tell the client. Clients may answer with an error, with rubbish, late or never."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal, Protocol

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT_S = 8.0
"""Within lsp-mode's and Eglot's 10 s for a whole command."""

MessageKind = Literal["error", "warning", "info", "log"]
_MESSAGE_TYPES: dict[MessageKind, int] = {"error": 1, "warning": 2, "info": 3, "log": 4}


class NoAnswerError(Exception):
    """The client answered with an error, or not in time."""


class Wire(Protocol):
    """The two ways to send, as the protocol engine offers them."""

    def ask(self, method: str, params: Any) -> asyncio.Future[Any]:
        """Send a request; the future gets the result or a JSON-RPC error."""
        ...

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        ...


class Client:
    """The client behind a wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def request(self, method: str, params: Any, timeout_s: float | None = ANSWER_TIMEOUT_S) -> Any:
        """The result. Raises NoAnswerError."""
        try:
            return await asyncio.wait_for(self._wire.ask(method, params), timeout_s)
        except TimeoutError:
            raise NoAnswerError(f"the editor did not answer {method} in {timeout_s:g} s") from None
        except asyncio.CancelledError:
            raise
        except Exception as error:
            raise NoAnswerError(f"the editor answered {method} with an error: {error}") from error

    def notify(self, method: str, params: Any) -> None:
        """Tell the client."""
        self._wire.notify(method, params)

    def show(self, text: str, kind: MessageKind = "info") -> None:
        """`window/showMessage`: for what a person asked for, never for exceptions."""
        self.notify("window/showMessage", {"type": _MESSAGE_TYPES[kind], "message": text})

    def log(self, text: str, kind: MessageKind = "log") -> None:
        """`window/logMessage`."""
        self.notify("window/logMessage", {"type": _MESSAGE_TYPES[kind], "message": text})

    async def ask(self, text: str, answers: list[str]) -> str | None:
        """`window/showMessageRequest`, without a time limit: the chosen title, None for dismissed.

        Raises NoAnswerError where the client cannot ask (Helix answers -32601).
        """
        params = {"type": 3, "message": text, "actions": [{"title": answer} for answer in answers]}
        result = await self.request("window/showMessageRequest", params, timeout_s=None)
        title = result.get("title") if isinstance(result, dict) else None
        return title if title in answers else None

    async def show_document(self, uri: str) -> bool:
        """`window/showDocument`: whether the client says that it did."""
        try:
            result = await self.request("window/showDocument", {"uri": uri, "takeFocus": True})
        except NoAnswerError as error:
            logger.info("%s", error)
            return False
        return isinstance(result, dict) and result.get("success") is True
