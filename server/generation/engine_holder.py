"""The engine that a server serves, and how it is exchanged while requests come in. Knows no HTTP."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from engine.engine import Engine
from server.errors import ApiError
from server.tool_calls import unknown_syntax

log = logging.getLogger("dspark.server")

Opener = Callable[[str, dict[str, Any]], Engine]
"""(model, options) -> a ready engine; blocks, raises engine errors."""


def public_name(engine: Engine) -> str:
    """What clients call the model; a folder or file is called by its last part, where it lies is nobody's business."""
    name = engine.spec.name
    return Path(name).name.removesuffix(".gguf") if Path(name).exists() else name


class Holder:
    """Zero or one engine. Loading releases the old one first: two models rarely fit."""

    def __init__(self, opener: Opener | None = None, engine: Engine | None = None, name: str = "") -> None:
        self._opener = opener
        self._engine = engine
        self.name = name or (public_name(engine) if engine else "")
        self.state: Literal["no_model", "loading", "ok", "error"] = "ok" if engine else "no_model"
        self.error = ""
        self._lock = threading.Lock()

    @property
    def engine(self) -> Engine:
        engine = self._engine
        if engine is not None:
            return engine
        if self.state == "loading":
            raise ApiError("The model is loading; try again shortly.", "unavailable", headers={"retry-after": "2"})
        raise ApiError("No model is loaded; load one with POST /admin/load.", "unavailable")

    @property
    def loaded(self) -> Engine | None:
        return self._engine

    def load(self, model: str, options: dict[str, Any]) -> None:
        """Blocks. A failed load leaves the server up, without a model."""
        if self._opener is None:
            raise ApiError("This server cannot exchange its model.", "invalid_request", status=501)
        with self._lock:
            self.state, self.error = "loading", ""
            self._release()
            try:
                self._engine = self._opener(model, options)
            except Exception as error:
                self.state, self.error = "error", str(error)
                raise
            self._serve(self._engine)

    def adopt(self, engine: Engine) -> None:
        """Serve an engine that was opened elsewhere."""
        with self._lock:
            self._release()
            self._serve(engine)

    def _serve(self, engine: Engine) -> None:
        self._engine, self.name, self.state = engine, public_name(engine), "ok"
        if unknown_syntax(engine.format.source):
            log.warning("%s writes tool calls in a syntax that is not known here: they arrive as text.", self.name)

    def unload(self) -> None:
        with self._lock:
            self._release()
            self.state = "no_model"

    def _release(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
