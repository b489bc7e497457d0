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

_OPEN_PATHS = frozenset(("/", "/page.css", "/page.js", "/show.js", "/health"))
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
# A name or an IPv4 address, or an IPv6 address without a zone; then perhaps a port.
_HOST = re.compile(r"(?:([A-Za-z0-9._-]+)|\[([0-9A-Fa-f:.]+)\])(?::[0-9]+)?")
# Of a client that takes the server for a proxy: RFC 9112 (3.2.2) wants its form of a path understood.
_ABSOLUTE = re.compile(r"https?://(?P<host>[^/]*)(?P<path>/.*)?", re.IGNORECASE | re.DOTALL)
_SLASHES = re.compile("/+")
# Routes would take a line end behind a path for nothing.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
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

    Slashes that a path repeats, or ends with, do not count.

    Args:
        hostnames: names of the server; IP addresses and ``localhost`` are always right.
        key: if clients need one, for all paths but `_OPEN_PATHS`.
        origins: of other web pages that may use the server.
    """

    def __init__(
        self, app: ASGIApp, hostnames: Sequence[str] = (), key: str | None = None, origins: Sequence[str] = ()
    ) -> None:
        self._app, self._key, self._origins = app, key, frozenset(origins)
        self._hostnames = frozenset(name.lower().rstrip(".") for name in ("localhost", *hostnames)) - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer that it is refused."""
        if scope["type"] != "http":
            return  # there are neither websockets nor a lifespan
        absolute = _ABSOLUTE.fullmatch(scope["path"])
        path = scope["path"] if absolute is None else absolute["path"] or "/"
        scope = {**scope, "path": _SLASHES.sub("/", path).rstrip("/") or "/"}
        allowed = self._allowed_origin(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = _HEADERS if allowed is None else _headers_for(allowed)
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        try:
            self._check(scope, allowed, absolute["host"] if absolute else None)
        except Fault as fault:
            await _refuse(fault, send_with_headers)
        else:
            if allowed is not None and scope["method"] == "OPTIONS":
                await _permit(send_with_headers)
            else:
                await self._app(scope, receive, send_with_headers)

    def _allowed_origin(self, scope: Scope) -> bytes | None:
        """The origin of a request, if it is one of another page that may use the server."""
        found = [value for name, value in scope["headers"] if name.lower() == b"origin"]
        is_allowed = len(found) == 1 and found[0].decode("latin-1") in self._origins
        return found[0] if is_allowed else None

    def _check(self, scope: Scope, allowed: bytes | None, host_in_path: str | None) -> None:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        _only(headers, "content-type")
        if "content-length" in headers and "transfer-encoding" in headers:
            raise Fault(400, "a body has Content-Length or Transfer-Encoding, not both: proxies may read the other one")
        host = _only(headers, "host")
        if host_in_path not in (None, host):
            raise Fault(400, "the path and the header Host name different servers")
        named = _HOST.fullmatch(host)
        if named is None or not self._is_ours(named[1] or named[2]):
            raise Fault(
                403, "the Host header has an unknown name. Use the server's IP address, or start it with --hostnames"
            )
        origin, fetched_by = _only(headers, "origin"), _only(headers, "sec-fetch-site")
        is_link = scope["path"] == "/" and scope["method"] == "GET"
        is_foreign = (origin and origin not in (f"http://{host}", f"https://{host}")) or (
            fetched_by not in ("", "same-origin", "none") and not is_link
        )
        if is_foreign and allowed is None:
            raise Fault(403, "requests of web pages from other origins are refused; see sce serve --allow-origin")
        asks_first = allowed is not None and scope["method"] == "OPTIONS"  # browsers send no key with that
        if self._key is not None and scope["path"] not in _OPEN_PATHS and not asks_first:
            scheme, _, credentials = _only(headers, "authorization").partition(" ")
            # Bytes: texts that are not ASCII would be an error.
            is_right = hmac.compare_digest(credentials.strip().encode(), self._key.encode())
            if scheme.lower() != "bearer" or not is_right:
                raise Fault(
                    401, "missing or wrong key; send the header Authorization: Bearer KEY", code="invalid_api_key"
                )
        if _CONTROLS.search(scope["path"]):
            raise Fault(404, "no such path: it has a control character")

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


def _headers_for(origin: bytes) -> list[tuple[bytes, bytes]]:
    """The headers of an answer that the page of another origin may read."""
    own = [(name, value) for name, value in _HEADERS if name != b"cross-origin-resource-policy"]
    return [
        *own,
        (b"cross-origin-resource-policy", b"cross-origin"),
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"*"),
        (b"vary", b"Origin"),
    ]


async def _permit(send: Send) -> None:
    """Answer a browser that asks whether a page may send a request."""
    headers = [
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", b"authorization, *"),
        (b"access-control-allow-private-network", b"true"),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(fault: Fault, send: Send) -> None:
    body = json.dumps(fault.to_record()).encode("ascii")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if fault.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if fault.status == 400:  # it is unclear where the next request begins
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": fault.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
