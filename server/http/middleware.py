"""What every request must pass before a route sees it: size of headers, Host, Origin, key. And the access log.

A browser page must not reach a server on this machine: Host stops rebinding, Origin stops cross-site calls. Knows no
dialect: the envelope of a refusal and the headers that may hold a key are given.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import logging
import re
import time
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.errors import ApiError
from server.settings import Settings

log = logging.getLogger("dspark.access")

PUBLIC = frozenset({"/", "/health"})
"""Routes that ask for no key; they tell nothing worth a key."""
DRAIN_BYTES = 65_536
DRAIN_SECONDS = 0.5
METHODS = "GET, POST, DELETE, OPTIONS"
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
CONTAINER_HOSTS = frozenset(
    {
        "host.docker.internal",
        "gateway.docker.internal",
        "kubernetes.docker.internal",
        "host.containers.internal",
        "host.lima.internal",
        "host.orb.internal",
        "host.minikube.internal",
    }
)
"""What containers and virtual machines call the machine that they run on. `.internal` is reserved for private use: no
stranger's name server can rebind one of these."""


Envelope = Callable[[str, ApiError], bytes]
"""(path, error) -> the body of a refusal."""


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(value: str) -> str:
    """The host without port and brackets, in lower case."""
    try:
        return (urlsplit(f"//{value}").hostname or "").rstrip(".")
    except ValueError:
        return ""


class Guard:
    """ASGI middleware; the outermost part of the application."""

    def __init__(self, app: ASGIApp, settings: Settings, envelope: Envelope, key_headers: Iterable[str]) -> None:
        self._app = app
        self._envelope = envelope
        self._key_headers = frozenset(key_headers)
        self._settings = settings
        self._hosts = CONTAINER_HOSTS | {h.lower() for h in (settings.host, *settings.allowed_hosts)}
        # Digests have one length, so that comparing them tells nothing about a key's.
        self._keys = [hashlib.sha256(k.encode()).digest() for k in settings.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0
        headers = Headers(scope=scope)
        scope["path"] = scope["path"].rstrip("/") or "/"
        origin = headers.get("origin")
        allowed_origin = origin if origin and self._origin_allowed(origin) else None

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if allowed_origin:
                    cors = _cors(allowed_origin, headers.get("access-control-request-headers", ""))
                    message = {**message, "headers": [*message["headers"], *cors]}
            await send(message)

        try:
            self._check(scope, headers, origin, allowed_origin)
        except ApiError as error:
            await _refuse(receive, answer, self._envelope(scope["path"], error), error)
        else:
            if scope["method"] == "OPTIONS":
                await _preflight(answer)
            else:
                await self._app(scope, receive, answer)
        finally:
            spent = (time.perf_counter() - began) * 1e3
            # The path comes from outside: escaped, so that it cannot forge lines or steer a terminal.
            log.info("%s %s %d %.0f ms", scope["method"], ascii(scope["path"][:200])[1:-1], status, spent)

    def _check(self, scope: Scope, headers: Headers, origin: str | None, allowed_origin: str | None) -> None:
        if sum(len(k) + len(v) for k, v in scope["headers"]) > self._settings.max_header:
            raise ApiError("The request's headers are too large.", status=431)
        if not self._host_allowed(headers.get("host", "")):
            name = ascii(host_of(headers.get("host", ""))[:200])[1:-1]
            raise ApiError(
                f"The Host '{name}' is not served here; start the server with --allowed-host {name} to add it.",
                "permission",
            )
        if origin and not allowed_origin:
            name = ascii(origin[:200])[1:-1]
            raise ApiError(
                f"The Origin '{name}' may not use the server; start it with --allowed-origin {name} to add it.",
                "permission",
            )
        if scope["method"] != "OPTIONS" and scope["path"] not in PUBLIC:
            self._authenticate(headers)

    def _host_allowed(self, value: str) -> bool:
        host = host_of(value)
        if is_loopback(host) or host in self._hosts:
            return True
        try:
            # Rebinding needs a name; an address in the Host header is the one that was connected to.
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True

    def _origin_allowed(self, origin: str) -> bool:
        return origin in self._settings.allowed_origins or is_loopback(host_of(urlsplit(origin).netloc))

    def _authenticate(self, headers: Headers) -> None:
        if not self._keys:
            return
        given = (_key(name, headers.get(name, "")) for name in self._key_headers)
        if not _matches((g for g in given if g), self._keys):
            raise ApiError(
                "The API key is missing or wrong.",
                "authentication",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )


def _key(header: str, value: str) -> str:
    """The key that a header holds; authorization says first of which kind it is."""
    if header != "authorization":
        return value
    return value[7:].strip() if value[:7].lower() == "bearer " else ""


def _matches(given: Iterable[str], keys: list[bytes]) -> bool:
    """Whether any given key is one of ours; takes as long whichever it is."""
    found = False
    for value in given:
        digest = hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()
        for key in keys:
            found |= hmac.compare_digest(digest, key)
    return found


def _cors(origin: str, asked: str) -> list[tuple[bytes, bytes]]:
    """An origin that may use the server may send what headers it likes: clients add new ones with every release."""
    headers = [
        (b"access-control-allow-origin", origin.encode("latin-1", "replace")),
        (b"vary", b"Origin, Access-Control-Request-Headers"),
        (b"access-control-allow-methods", METHODS.encode()),
        (b"access-control-expose-headers", b"*"),
        (b"access-control-allow-private-network", b"true"),
    ]
    names = [name.strip() for name in asked.split(",")]
    wanted = ", ".join(name for name in names if _HEADER_NAME.fullmatch(name))
    return [*headers, (b"access-control-allow-headers", wanted.encode())] if wanted else headers


async def _preflight(send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": [(b"allow", METHODS.encode())]})
    await send({"type": "http.response.body", "body": b""})


async def _drain(receive: Receive) -> None:
    """Take a small body off the wire: closing a socket with unread bytes resets it, and the client would lose the
    answer. Bounded in bytes and time, for whoever is refused has no claim on either."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            await _read(receive)


async def _read(receive: Receive) -> None:
    taken = 0
    while taken < DRAIN_BYTES:
        message = await receive()
        taken += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return


async def _refuse(receive: Receive, send: Send, body: bytes, error: ApiError) -> None:
    """Answer whatever the request's body says; the connection closes, because its rest may be unread."""
    await _drain(receive)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *((k.encode(), v.encode()) for k, v in error.headers.items()),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
