"""Addresses of OpenAI-compatible servers: one canonical form, and whether one is this machine."""

from __future__ import annotations

import ipaddress

import httpx

from agent.errors import UsageError

ENDPOINT_HINT = "Give the address of an OpenAI-compatible server, for example http://127.0.0.1:8080/v1."
_ROUTE = "/chat/completions"


def normalize_base_url(url: str) -> str:
    """The canonical base URL, without a slash at its end; `/v1` is added where there is no path.

    Raises UsageError for anything that is not a plain http(s) address: credentials, a query or a fragment
    in it would end up in logs and in the consent file.
    """
    try:
        parsed = httpx.URL(url.strip())
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise UsageError("the address of the endpoint cannot be read", ENDPOINT_HINT) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError("the address of the endpoint is not an http or https address", ENDPOINT_HINT)
    if parsed.port is not None and not 0 < parsed.port < 65_536:
        raise UsageError(f"the address of the endpoint has the port {parsed.port}: there is none", ENDPOINT_HINT)
    if parsed.userinfo:
        raise UsageError(
            "the address of the endpoint holds a user name or a password",
            "Put the key in an environment variable and name that variable instead.",
        )
    if parsed.query or parsed.fragment:
        raise UsageError("the address of the endpoint holds a query or a fragment", ENDPOINT_HINT)
    path = parsed.path.rstrip("/").removesuffix(_ROUTE) or "/v1"
    return str(parsed.copy_with(path=path))


def is_local(url: str) -> bool:
    """Whether `url` is a loopback address of this machine. False for what cannot be read."""
    try:
        host = httpx.URL(normalize_base_url(url)).host
    except UsageError:
        return False
    if host.lower().removesuffix(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
