"""Routes about the server itself: health, metrics, models, loading, the cache, token counts."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from server.api.base import decode
from server.errors import ApiError, bad
from server.generation.service import Service
from server.http.body import read_body
from server.types import Chat


class _Load(msgspec.Struct):
    model: str
    drafter: str | None = None
    cap: int | None = None
    max_batch: int | None = None
    context: int | None = None


class _Tokenize(msgspec.Struct):
    prompt: str | None = None
    content: str | None = None
    messages: list[dict[str, Any]] | None = None
    model: str = ""


class _Detokenize(msgspec.Struct):
    tokens: list[int]
    model: str = ""


def _json(body: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


class Admin:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._started = int(time.time())

    # Open to all ------------------------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        holder = self._service.holder
        body: dict[str, Any] = {"status": holder.state, **self._service.metrics.totals()}
        engine = holder.loaded
        if engine is not None:
            body |= {"model": holder.name, "drafter": engine.drafter, "context": engine.spec.context}
        if holder.error:
            body["error"] = holder.error
        return _json(body, 200 if holder.state in ("ok", "no_model") else 503)

    async def metrics(self, request: Request) -> Response:
        metrics = self._service.metrics
        engine = self._service.holder.loaded
        cache = engine.options.cache if engine is not None else None
        if cache is not None and cache.budget:
            metrics.kv_usage.set(cache.nbytes / cache.budget)
        if cache is not None:
            metrics.prefix_unsound.set(cache.stats().unsound)
        if engine is not None:
            metrics.state_bytes.set(engine.state_bytes)
            metrics.state_budget.set(engine.admission.budget)
        return Response(metrics.render(), media_type=metrics.content_type)

    # Models -----------------------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> Response:
        data = [self._model(n) for n in self._names()]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
        return _json({"object": "list", "data": data, "has_more": False, **ends})

    async def model(self, request: Request) -> Response:
        name = request.path_params["id"]
        self._service.engine(name)
        return _json(self._model(name))

    def _names(self) -> list[str]:
        holder = self._service.holder
        if holder.loaded is None:
            return []
        plain = (a for a in self._service.settings.aliases if not set(a) & set("*?["))
        return list(dict.fromkeys((holder.name, *plain)))

    def _model(self, name: str) -> dict[str, Any]:
        engine = self._service.holder.engine
        return {
            "id": name,
            "object": "model",
            "type": "model",
            "created": self._started,
            "created_at": datetime.fromtimestamp(self._started, UTC).isoformat(),
            "display_name": self._service.holder.name,
            "owned_by": "dspark-chat",
            "max_model_len": engine.spec.context,
            "context_length": engine.spec.context,
            "drafters": [d.name for d in engine.drafters if d.available],
        }

    # With a key only --------------------------------------------------------------------------------------------------

    def _allow(self) -> None:
        if not self._service.settings.keys:
            raise ApiError("Admin routes need a server that was started with --api-key.", "permission")

    async def status(self, request: Request) -> Response:
        self._allow()
        holder = self._service.holder
        return _json({"state": holder.state, "model": holder.name if holder.loaded else None, "error": holder.error})

    async def load(self, request: Request) -> Response:
        self._allow()
        wanted = decode(await read_body(request, self._service.settings), _Load)
        options = {k: v for k, v in msgspec.structs.asdict(wanted).items() if k != "model" and v is not None}
        if not wanted.model:
            raise bad("model: must not be empty.", "model")
        await asyncio.to_thread(self._service.holder.load, wanted.model, options)
        return await self.status(request)

    async def unload(self, request: Request) -> Response:
        self._allow()
        await asyncio.to_thread(self._service.holder.unload)
        return await self.status(request)

    async def cache(self, request: Request) -> Response:
        self._allow()
        engine = self._service.holder.engine
        cache = engine.options.cache
        if cache is None:
            raise ApiError("The prefix cache is switched off.", "not_found")
        if request.method == "DELETE":
            files = request.query_params.get("disk", "false")
            if files not in ("true", "false"):
                raise bad("disk: must be true or false.", "disk")
            await asyncio.to_thread(engine.run_exclusive, lambda: cache.clear(disk=files == "true"))
        stats = await asyncio.to_thread(engine.run_exclusive, cache.stats)
        return _json({name: getattr(stats, name) for name in stats.__dataclass_fields__})

    # Tokens -----------------------------------------------------------------------------------------------------------

    def parse_tokenize(self, body: bytes) -> Chat:
        wanted = decode(body, _Tokenize)
        text = wanted.prompt if wanted.prompt is not None else wanted.content
        if wanted.messages:
            return Chat(model=wanted.model, messages=wanted.messages)
        if not text:
            raise bad("prompt: give text, or messages.", "prompt")
        return Chat(model=wanted.model, prompt=text)

    def detokenize(self, body: bytes) -> dict[str, Any]:
        wanted = decode(body, _Detokenize)
        engine = self._service.engine(wanted.model)
        if not all(0 <= t < engine.spec.vocab_size for t in wanted.tokens):
            raise bad(f"tokens: ids go from 0 to {engine.spec.vocab_size - 1}.", "tokens")
        return {"prompt": engine.tokenizer.decode(wanted.tokens), "content": engine.tokenizer.decode(wanted.tokens)}
