"""What every request must pass before it is read: its host, its origin, its key; and headers for every response.

A web page in the user's browser can send requests to this machine. It cannot choose their ``Host`` (which stops DNS
rebinding) nor hide their ``Origin``, and it cannot send JSON to another origin without asking first, which we refuse.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import re
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from securecoderl_edge.serving.faults import Fault

_OPEN_PATHS = frozenset(("/", "/page.css", "/page.js", "/health"))
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
# A name or an IPv4 address, or an IPv6 address without a zone; then perhaps a port.
_HOST = re.compile(r"(?:([A-Za-z0-9._-]+)|\[([0-9A-Fa-f:.]+)\])(?::[0-9]+)?")
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """ASGI middleware.

    Args:
        hostnames: names of the server; IP addresses and ``localhost`` are always right.
        key: if clients need one, for all paths but `_OPEN_PATHS`.
    """

    def __init__(self, app: ASGIApp, hostnames: Sequence[str] = (), key: str | None = None) -> None:
        self._app, self._key = app, key
        self._hostnames = frozenset(name.lower().rstrip(".") for name in ("localhost", *hostnames)) - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer that it is refused."""
        if scope["type"] != "http":
            return  # there are neither websockets nor a lifespan

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        try:
            self._check(scope)
        except Fault as fault:
            await _refuse(fault, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    def _check(self, scope: Scope) -> None:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        _only(headers, "content-type")
        if "content-length" in headers and "transfer-encoding" in headers:
            raise Fault(400, "a body has Content-Length or Transfer-Encoding, not both: proxies may read the other one")
        host = _only(headers, "host")
        named = _HOST.fullmatch(host)
        if named is None or not self._is_ours(named[1] or named[2]):
            raise Fault(
                403, "the Host header has an unknown name. Use the server's IP address, or start it with --hostnames"
            )
        origin, fetched_by = _only(headers, "origin"), _only(headers, "sec-fetch-site")
        is_link = scope["path"] == "/" and scope["method"] == "GET"
        if (origin and origin not in (f"http://{host}", f"https://{host}")) or (
            fetched_by not in ("", "same-origin", "none") and not is_link
        ):
            raise Fault(403, "requests of web pages from other origins are refused")
        if self._key is not None and scope["path"] not in _OPEN_PATHS:
            scheme, _, credentials = _only(headers, "authorization").partition(" ")
            # Bytes: texts that are not ASCII would be an error.
            is_right = hmac.compare_digest(credentials.strip().encode(), self._key.encode())
            if scheme.lower() != "bearer" or not is_right:
                raise Fault(
                    401, "missing or wrong key; send the header Authorization: Bearer KEY", code="invalid_api_key"
                )

    def _is_ours(self, name: str) -> bool:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower().rstrip(".") in self._hostnames
        return True


def _only(headers: dict[str, list[str]], name: str) -> str:
    """The value of a header, empty if it is missing.

    Raises:
        Fault: it occurs several times: others may read another one of them than we do.
    """
    values = headers.get(name, [""])
    if len(values) > 1:
        raise Fault(400, f"the header {name} occurs several times")
    return values[0].strip()


async def _refuse(fault: Fault, send: Send) -> None:
    body = json.dumps(fault.to_record()).encode("ascii")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if fault.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if fault.status == 400:  # it is unclear where the next request begins
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": fault.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
