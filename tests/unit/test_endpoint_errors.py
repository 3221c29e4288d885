"""What servers mean by their errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from agent.model.endpoint_errors import ServerError, error_message, parse_retry_after, read_error
from agent.model.endpoint_retry import RetryPolicy
from tests.openai_server import HTML_PAGE, OVERFLOWS, ROOM_FOR_LESS


@pytest.mark.parametrize("name", [name for name, item in OVERFLOWS.items() if item["kind"] == "status"])
def test_overflow_in_the_words_of_the_servers(name: str) -> None:
    item = OVERFLOWS[name]
    assert read_error(item["status"], json.dumps(item["json"])).overflow


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 131072 tokens. However, you requested 8192 output tokens and your"
        " prompt contains at least 125000 input tokens, for a total of at least 133192 tokens.",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        "input length exceeds maximum context length",
        "context_length_exceeded",
        "Input length (265330) exceeds model's maximum context length (262144).",
        "The input is too large to process. increase the physical batch size",
    ],
)
def test_overflow_in_older_and_newer_words(message: str) -> None:
    assert ServerError(status=400, message=message).overflow


@pytest.mark.parametrize("message", ["Internal server error", "model not found", "context", "invalid messages[3]"])
def test_other_errors_are_no_overflow(message: str) -> None:
    assert not ServerError(status=400, message=message).overflow


@pytest.mark.parametrize(
    ("item", "room"),
    [
        (ROOM_FOR_LESS, 32768 - 30000 - 2),
        (OVERFLOWS["sglang-total"], 40960 - 40760 - 2),
        (OVERFLOWS["vllm-2024"], 32768 - 33456 - 2),
        (OVERFLOWS["llama-server"], None),
    ],
)
def test_room_that_is_left(item: dict[str, object], room: int | None) -> None:
    assert read_error(400, json.dumps(item["json"])).room_tokens == room


@pytest.mark.parametrize(
    ("status", "again"), [(408, True), (429, True), (500, True), (502, True), (503, True), (504, True)]
)
def test_retryable(status: int, again: bool) -> None:
    assert ServerError(status=status, message="x").retryable is again


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 501])
def test_not_retryable(status: int) -> None:
    assert not ServerError(status=status, message="x").retryable


def test_a_missing_option_is_not_retried() -> None:
    jinja = ServerError(status=500, message="tools param requires --jinja flag")
    assert not jinja.retryable and "--jinja" in (jinja.missing_option or "")
    vllm = ServerError(
        status=400, message='"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    )
    assert "qwen3_coder" in (vllm.missing_option or "")


SENT = ("temperature", "top_p", "top_k", "min_p", "max_tokens")
EXTRAS = ("top_k", "min_p")


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("Unknown parameter: 'top_k'.", ("top_k",)),
        ("Unrecognized request argument supplied: min_p", ("min_p",)),
        (
            "[{'type': 'extra_forbidden', 'loc': ('body', 'top_k'), 'msg': 'Extra inputs are not permitted'}]",
            ("top_k",),
        ),
        ("Extra inputs are not permitted", EXTRAS),
        ("property 'min_p' is unsupported", ("min_p",)),
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", ("max_tokens",)),
        ("messages must alternate", ()),
        ("stop_top_keys is wrong", ()),
    ],
)
def test_fields_that_a_server_rejects(message: str, fields: tuple[str, ...]) -> None:
    assert ServerError(status=400, message=message).rejected_fields(SENT, EXTRAS) == fields
    assert ServerError(status=500, message=message).rejected_fields(SENT, EXTRAS) == ()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error": {"message": "a  b", "type": "t"}}', "a b t"),
        ('{"error": "plain"}', "plain"),
        ('{"object": "error", "message": "m"}', "m"),
        ('{"detail": [{"loc": ["body", "top_k"]}]}', '[{"loc": ["body", "top_k"]}]'),
        (HTML_PAGE, "an HTML page: 502 Bad Gateway"),
        ("", ""),
        ("[" * 50_000, "[" * 2000),
    ],
)
def test_words_of_a_body(body: str, words: str) -> None:
    assert error_message(body) == words


def test_retry_after() -> None:
    assert parse_retry_after("3") == 3.0
    assert parse_retry_after("-3") == 0.0
    assert parse_retry_after(None) is None
    assert parse_retry_after("soon") is None
    assert parse_retry_after("nan") is None
    assert parse_retry_after("inf") is None
    later = parse_retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True))
    assert later is not None and 25 < later <= 30


def test_waits_double_up_to_a_limit_and_never_undercut_the_server() -> None:
    policy = RetryPolicy(first_wait_s=1, max_wait_s=8)
    for attempt, most_s in ((1, 1), (2, 2), (3, 4), (4, 8), (9, 8)):
        assert all(most_s / 2 <= policy.wait_s(attempt, None) <= most_s for _ in range(20))
    assert policy.wait_s(1, 30.0) == 30.0
