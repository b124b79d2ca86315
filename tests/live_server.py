"""One running server on loopback, with a client for it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import httpx
import uvicorn

from server.api.dialect import Dialect
from server.api.dialects import DIALECTS
from server.app import App
from server.generation.engine_holder import Holder
from server.run import uvicorn_config
from server.settings import Settings


class Live:
    """One running server."""

    def __init__(self, engine: Any, settings: Settings, name: str = "", dialects: Sequence[Dialect] = DIALECTS) -> None:
        self.engine = engine
        self.app = App(Holder(engine=engine, name=name), settings, dialects)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server = uvicorn.Server(uvicorn_config(self.app, settings))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 60
        while not self._server.started and time.monotonic() < deadline:
            time.sleep(0.005)
        self._kept: list[Any] = []
        self.http = httpx.Client(base_url=self.url, timeout=120, trust_env=False)

    def keep(self, client: Any) -> Any:
        """A client that is closed with the server."""
        self._kept.append(client)
        return client

    def close(self) -> None:
        for client in self._kept:
            client.close()
        self.http.close()
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(10)
        self._socket.close()

    def gauge(self, name: str) -> float:
        from prometheus_client.parser import text_string_to_metric_families

        for family in text_string_to_metric_families(self.http.get("/metrics").text):
            for sample in family.samples:
                if sample.name == f"dspark:{name}":
                    return sample.value
        raise KeyError(name)
