"""A server of this project on a free loopback port, in a thread of this process, for benchmarks."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import uvicorn

from engine.engine import Engine
from server.app import App
from server.generation.engine_holder import Holder
from server.run import uvicorn_config
from server.settings import Settings


@contextlib.contextmanager
def serving(engine: Engine, settings: Settings | None = None) -> Iterator[tuple[str, App]]:
    """(url, application) while the block runs."""
    settings = settings or Settings()
    app = App(Holder(engine=engine), settings)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn_config(app, settings))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", app
        finally:
            server.should_exit = server.force_exit = True
            thread.join(10)
