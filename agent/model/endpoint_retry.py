"""Trying again, with exponential backoff and jitter."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from agent.errors import FrogError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long to wait: the wait doubles from `first_wait_s` to `max_wait_s`, less a random part.

    A server that asks for more than `max_retry_after_s` is not waited for.
    """

    attempts: int = 5
    first_wait_s: float = 0.5
    max_wait_s: float = 20.0
    max_retry_after_s: float = 120.0

    def wait_s(self, attempt: int, retry_after_s: float | None) -> float:
        """The wait after the failed try number `attempt` (from 1)."""
        backoff_s = min(self.max_wait_s, self.first_wait_s * 2.0 ** (attempt - 1))
        return max(backoff_s * random.uniform(0.5, 1.0), retry_after_s or 0.0)  # noqa: S311


class TryAgainError(Exception):
    """One try failed in a way that may pass; `final` is what to raise when there are no more tries."""

    def __init__(self, final: FrogError, retry_after_s: float | None = None) -> None:
        super().__init__(final.message)
        self.final = final
        self.retry_after_s = retry_after_s


async def try_repeatedly(
    query: Callable[[], Awaitable[T]], policy: RetryPolicy, on_wait: Callable[[float, FrogError], None]
) -> T:
    """Await `query()` until it answers, at most `policy.attempts` times. Cancellable while it waits.

    Raises `TryAgainError.final` of the last try; any other exception of `query` at once.
    """
    attempt = 1
    while True:
        try:
            return await query()
        except TryAgainError as failure:
            after_s = failure.retry_after_s
            if attempt >= policy.attempts or (after_s is not None and after_s > policy.max_retry_after_s):
                raise failure.final from failure
            wait_s = policy.wait_s(attempt, after_s)
            on_wait(wait_s, failure.final)
        await asyncio.sleep(wait_s)
        attempt += 1
