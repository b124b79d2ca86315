"""Server-sent events: frames, and the response that writes them.

The response watches the connection while it writes: a reader that leaves, or does not take a write in time, stops the
work behind it at once. Knows no dialect.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

_encode = msgspec.json.Encoder().encode

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


def frame(data: Any, event: str | None = None) -> bytes:
    """One event. `data` is JSON-encoded unless it is bytes already."""
    body = data if isinstance(data, bytes) else _encode(data)
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + body + b"\n\n"


DONE = frame(b"[DONE]")


async def gone(receive: Receive) -> None:
    """Return when the client has closed the connection. The request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream:
    """An ASGI response over an iterator of frames. `cancel` is called when nobody reads any more."""

    def __init__(self, frames: AsyncIterator[bytes], cancel: Callable[[], None], write_timeout: float) -> None:
        self._frames = frames
        self._cancel = cancel
        self._write_timeout = write_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = asyncio.create_task(self._write(send))
        watcher = asyncio.create_task(gone(receive))
        try:
            await asyncio.wait({writer, watcher}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not writer.done():
                self._cancel()
            for task in (writer, watcher):
                task.cancel()
                # A write that failed because the reader left, or timed out, is an end like any other.
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await task

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        try:
            async for chunk in self._frames:
                async with asyncio.timeout(self._write_timeout):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError:
            self._cancel()
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
