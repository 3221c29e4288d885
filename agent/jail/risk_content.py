"""What the added lines of a change hold that a reader would not see, or that weakens what protects them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent.types import Flag

LONG_LINE_CHARS = 2_000
"""A longer line is not read by anybody in a review."""

_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ZERO_WIDTH = re.compile(
    "[\u00ad\u034f\u115f\u1160\u180e\u200b-\u200d\u2060-\u2064\u3164\ufeff\uffa0\U000e0000-\U000e007f]"
)
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/_-])(?:(?:[A-Za-z0-9+/]{60,76}[\s\"'\\,+]{1,12}){3,}|[A-Za-z0-9+/_-]{200,}={0,2})"
)
_HOST = re.compile(
    r"\b(?:https?|wss?|ftp|ssh|git|git\+\w+)://(?:[^\s/@'\"]*@)?([A-Za-z0-9.-]+\.[A-Za-z0-9-]+|\[[0-9A-Fa-f:]+\])"
)
_HARMLESS_HOST = re.compile(
    r"^(?:127\.[\d.]+|0\.0\.0\.0|\[::1?\]|.*\.(?:test|example|invalid|localhost)|(?:.*\.)?example\.(?:com|org|net))$"
)
_PIPE_TO_SHELL = re.compile(
    r"\b(?:curl|wget|fetch|iwr|Invoke-WebRequest)\b[^\n|;]{0,400}\|\s*(?:\w+=\S+\s+)*(?:sudo\s+(?:-\S+\s+)*)?(?:/\S*/)?(?:env\s+)?"
    r"(?:(?:ba|z|da|k|fi|c|tc)?sh|python[\d.]*|perl|ruby|node|php|iex|source)\b"
    r"|\b(?:ba|z|da|k)?sh\b\s+(?:-c\s+[\"']?)?(?:<\(|\$\(|`)\s*(?:curl|wget)\b|\b(?:eval|source|\.)\s+[\"']?(?:<\(|\$\(|`)\s*(?:curl|wget)\b"
    r"|\biex\b[^\n]{0,400}(?:DownloadString|iwr|Invoke-WebRequest)",
    re.IGNORECASE,
)
_UNVERIFIED = re.compile(
    r"\bverify(?:_ssl|_certs?|_mode)?[\"']?\s*[=:]\s*(?:False|0\b|None\b|[\"']false)|CERT_NONE|_create_unverified_context"
    r"|check_hostname\s*=\s*False|rejectUnauthorized[\"']?\s*:\s*false|NODE_TLS_REJECT_UNAUTHORIZED|InsecureSkipVerify\s*[:=]\s*true"
    r"|\bsslVerify\b\W+false|GIT_SSL_NO_VERIFY|--no-check-certificate|--insecure\b|\bcurl\b[^\n|;]{0,400}\s-\w*k\b|--trusted-host"
    r"|StrictHostKeyChecking[ =]+(?:no|off)|danger_accept_invalid_certs\(true\)|disable_warnings\(|strict-ssl\W+false"
    r"|PYTHONHTTPSVERIFY\W+0|ssl\s*=\s*False",
)
_NO_VERIFY = re.compile(r"--no-verify\b|\bcommit\s+(?:-\w*n\w*)\s|HUSKY\s*=\s*[\"']?0|core\.hooksPath")
_SKIP = re.compile(
    r"@\s*(?:pytest\s*\.\s*mark\s*\.\s*(?:skip|skipif|xfail)|unittest\s*\.\s*(?:skip\w*|expectedFailure)|skip(?:If|Unless)?\b|Ignore\b|Disabled\b)"
    r"|\bpytest\s*\.\s*(?:skip|xfail|importorskip)\s*\(|\bself\s*\.\s*skipTest\s*\(|\braise\s+(?:unittest\.)?SkipTest|\bcollect_ignore"
    r"|\b(?:it|test|describe|context)\s*\.\s*(?:skip|todo|only)\b|\b(?:xit|xdescribe|xtest|fit|fdescribe)\s*\(|\bt\.Skip\w*\(|#\[ignore"
)


MAX_SCANNED_CHARS = 1 << 19
"""More added text than this is searched at its start only, and the flag says so. Of a long line too, only the
start: the flag of its length says enough."""


def content_flags(added: Iterable[str], known: str) -> list[Flag]:
    """Flags of the lines that a change adds (line ends optional); `known` is the text that was there before."""
    lines = list(added)
    whole = "\n".join(line[:LONG_LINE_CHARS].rstrip("\r\n") for line in lines)
    text, known = whole[:MAX_SCANNED_CHARS], known[:MAX_SCANNED_CHARS]
    flags: list[Flag] = []

    def note(code: str, why: str) -> None:
        flags.append(Flag(code=code, level="note", why=why))

    if len(whole) > len(text):
        note(
            "unsearched",
            f"it adds {len(whole):,} characters: only the first {len(text):,} were searched for such things",
        )
    if found := _BIDI.search(text):
        note("bidi", f"holds the invisible direction mark {_named(found[0])}: what is shown is not what runs")
    if found := _ZERO_WIDTH.search(text):
        note("zero-width", f"holds the invisible character {_named(found[0])}: two names that look alike may differ")
    if "\x1b" in text:
        note("escape", "holds the ESC character: a terminal that prints the file obeys it")
    if (longest := max(map(len, lines), default=0)) > LONG_LINE_CHARS:
        note("long-line", f"has a line of {longest:,} characters: its end is out of sight in a review")
    if _BASE64.search(text):
        note("base64", "holds a long encoded block that nobody can read; code may be unpacked from it when it is used")
    if hosts := sorted(_hosts(text) - _hosts(known)):
        named = ", ".join(hosts[:5]) + (" …" if len(hosts) > 5 else "")
        note("new-host", f"names a host that the file did not name before: {named}; it is contacted when the code runs")
    if _PIPE_TO_SHELL.search(text):
        note("pipe-to-shell", "downloads a script and runs it unread when the line runs")
    if _UNVERIFIED.search(text):
        note("unverified", "switches off a check of certificates or host keys wherever the code runs")
    if _NO_VERIFY.search(text):
        note("no-verify", "goes round the hooks of git when the command runs")
    return flags


def skips_tests(added: Iterable[str]) -> bool:
    """Whether a line skips a test, expects it to fail, or runs nothing but one."""
    return any(_SKIP.search(line[:LONG_LINE_CHARS]) for line in added)


def _hosts(text: str) -> set[str]:
    return {host.lower() for host in _HOST.findall(text) if not _HARMLESS_HOST.match(host.lower())}


def _named(character: str) -> str:
    return f"U+{ord(character):04X}"
