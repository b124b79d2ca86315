"""The body of a request: within limits of size and time, and as text that can be read. Knows no dialect."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from engine.chat.foreign_text import json_bytes
from server.errors import ApiError
from server.settings import Settings


async def read_body(request: Request, settings: Settings) -> bytes:
    """The whole body, within the limits of size and time, in whole characters."""
    encoding = request.headers.get("content-encoding", "identity").lower()
    close = {"connection": "close"}
    if encoding != "identity":
        raise ApiError(
            f"Content-Encoding '{encoding}' is not supported; send the body as it is.", status=415, headers=close
        )
    declared = request.headers.get("content-length", "0")
    too_large = ApiError(f"The body exceeds {settings.max_body >> 20} MB.", "too_large", headers=close)
    if not declared.isdigit() or int(declared) > settings.max_body:
        raise too_large
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(settings.body_timeout):
            async for part in request.stream():
                size += len(part)
                if size > settings.max_body:
                    raise too_large
                parts.append(part)
    except TimeoutError as error:
        raise ApiError("The body did not arrive in time.", "timeout", headers=close) from error
    return json_bytes(b"".join(parts))
