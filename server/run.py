"""Running the application: uvicorn's settings, and a stop that ends open streams instead of cutting them."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import uvicorn

from engine.errors import UsageError
from server.app import App
from server.settings import Settings

_H11_LIMIT = 256 << 10
"""Above our own header limit, so that our answer is the one that clients see."""


def uvicorn_config(app: App, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app.asgi(),
        host=settings.host,
        port=settings.port,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(settings.grace)),
        h11_max_incomplete_event_size=_H11_LIMIT,
    )


def listen(settings: Settings) -> socket.socket:
    """Take the port before a model is loaded for nothing.

    Raises:
        UsageError: when it cannot be had.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=512)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"Cannot listen on {settings.host} port {settings.port} ({error}); choose another with --port."
        ) from error


class Server(uvicorn.Server):
    """A server whose signal to stop first tells every stream, and which then ends with exit code 0."""

    def __init__(self, app: App, settings: Settings) -> None:
        super().__init__(uvicorn_config(app, settings))
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app.service.close()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but without raising the signal again afterwards: a stop that was asked for is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        wanted = (signal.SIGINT, signal.SIGTERM)
        before: dict[int, Any] = {s: signal.signal(s, self.handle_exit) for s in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
