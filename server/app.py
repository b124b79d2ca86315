"""The application: routes, reading bodies within limits, and the two ways to answer. Knows no model and no template."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from server.api.admin import Admin
from server.api.dialect import Context, Counter, Dialect, Identity, Side, Stream
from server.api.dialects import DIALECTS, error_body
from server.errors import ApiError, from_engine
from server.generation.engine_holder import Holder
from server.generation.response_store import Store
from server.generation.service import Generation, Service
from server.http.body import read_body
from server.http.middleware import Guard
from server.http.sse import EventStream, gone
from server.metrics import Metrics
from server.settings import Settings
from server.types import Answer, Broken

log = logging.getLogger("dspark.server")
Endpoint = Callable[[Request], Awaitable[ASGIApp]]

SESSION_HEADERS = ("x-claude-code-session-id", "session_id", "conversation_id", "x-session-id")
"""Where agents name the conversation that a request belongs to."""
FIRST_SIGN = 0.8
"""Seconds until a stream that has sent nothing yet says that it lives."""


class Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


class App:
    """Routes over one `Service`."""

    def __init__(self, holder: Holder, settings: Settings, dialects: Sequence[Dialect] = DIALECTS) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.service = Service(holder, settings, self.metrics)
        self.admin = Admin(self.service)
        self._dialects = dialects
        self.context = Context(Store(settings.stored))

    def asgi(self) -> ASGIApp:
        routes: list[Route] = [
            Route("/", self._edge(self.root), methods=["GET", "HEAD"]),
            Route("/health", self._edge(self.admin.health), methods=["GET", "HEAD"]),
            Route("/metrics", self._edge(self.admin.metrics), methods=["GET"]),
            *(route for dialect in self._dialects for route in self._spoken(dialect)),
            *self._both("/models", self.admin.models, "GET", "HEAD"),
            *self._both("/models/{id:path}", self.admin.model, "GET", "HEAD"),
            *self._both("/tokenize", self.tokenize),
            *self._both("/detokenize", self.detokenize),
            Route("/admin/status", self._edge(self.admin.status), methods=["GET"]),
            Route("/admin/load", self._edge(self.admin.load), methods=["POST"]),
            Route("/admin/unload", self._edge(self.admin.unload), methods=["POST"]),
            Route("/admin/cache", self._edge(self.admin.cache), methods=["GET", "DELETE"]),
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: self._http_error})
        # Slashes at the end are cut off before routing; a redirect would lose the body.
        app.router.redirect_slashes = False
        return Guard(app, self.settings, self._refusal, {d.key_header for d in self._dialects})

    def _spoken(self, dialect: Dialect) -> list[Route]:
        """All routes of one dialect."""
        routes = self._both(dialect.path, self._generate(dialect))
        if dialect.counter is not None:
            routes += self._both(dialect.counter.path, self._count(dialect.counter))
        for side in dialect.sides:
            routes += self._both(side.path, self._side(side), *side.answers)
        return routes

    def _both(self, path: str, endpoint: Endpoint, *methods: str) -> list[Route]:
        return [Route(p, self._edge(endpoint), methods=list(methods or ("POST",))) for p in (f"/v1{path}", path)]

    def _edge(self, endpoint: Endpoint) -> Endpoint:
        """The edge of a request: whatever happens becomes an answer in the dialect's shape."""

        async def run(request: Request) -> ASGIApp:
            try:
                return await endpoint(request)
            except ClientDisconnect:  # before its body was complete: nobody is left to answer
                return Response(status_code=499)
            except Exception as error:
                mapped = from_engine(error)
                if mapped.status == 500:
                    log.exception("a request failed")
                body = self._refusal(request.url.path, mapped)
                return Response(body, mapped.status, mapped.headers, "application/json")

        return run

    def _refusal(self, path: str, error: ApiError) -> bytes:
        return error_body(self._dialects, path, error)

    async def _http_error(self, request: Request, error: Exception) -> Response:
        """Routing errors: no such path, or not with this method."""
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            mapped = ApiError(f"{request.method} is not allowed here.", status=405)
        else:
            mapped = ApiError("There is no such route.", "not_found", status=error.status_code)
        headers = dict(error.headers or {})
        return Response(self._refusal(request.url.path, mapped), mapped.status, headers, "application/json")

    # Generation -------------------------------------------------------------------------------------------------------

    def _generate(self, dialect: Dialect) -> Endpoint:
        async def run(request: Request) -> ASGIApp:
            chat = dialect.read(await read_body(request, self.settings), self.context)
            chat.provenance = chat.provenance or request.headers.get("x-dspark", "") in ("1", "true")
            named = (request.headers.get(name) for name in SESSION_HEADERS)
            chat.conversation = chat.conversation or next(filter(None, named), "")
            generation = await self.service.start(chat)
            identity = Identity.fresh(dialect.id_prefix, chat.model or self.service.holder.name)
            if chat.stream:
                frames = self._frames(generation, dialect.stream(chat, identity))
                return EventStream(frames, lambda: _left(generation), self.settings.write_timeout)
            answers = await self._collect(request, generation, chat.choices)
            if answers is None:
                _left(generation)
                return Response(status_code=499)
            return Json(dialect.answer(chat, answers, identity))

        return run

    async def _frames(self, generation: Generation, stream: Stream) -> AsyncGenerator[bytes, None]:
        opening = b"".join(stream.open())
        if opening:
            yield opening
        quiet_since, patience = time.monotonic(), self.settings.ping if opening else FIRST_SIGN
        async with contextlib.aclosing(generation.deltas(min(FIRST_SIGN, self.settings.ping) / 2)) as deltas:
            async for item in deltas:
                frames: list[bytes] = []
                if item is not None and isinstance(item[1], Broken):
                    yield b"".join(stream.broken(item[1].error))
                    return
                if item is not None:
                    frames = stream.frames(*item)
                if not frames and time.monotonic() - quiet_since >= patience:
                    frames = stream.heartbeat()
                if frames:
                    yield b"".join(frames)
                    quiet_since, patience = time.monotonic(), self.settings.ping
        closing = b"".join(stream.close())
        if closing:
            yield closing

    async def _collect(self, request: Request, generation: Generation, choices: int) -> list[Answer] | None:
        """All answers, or None when the client left before they were complete."""
        answers = [Answer() for _ in range(choices)]

        async def collect() -> None:
            async with contextlib.aclosing(generation.deltas(60.0)) as deltas:
                async for item in deltas:
                    if item is None:
                        continue
                    choice, delta = item
                    if isinstance(delta, Broken):
                        raise delta.error
                    answers[choice].add(delta)

        work = asyncio.create_task(collect())
        watch = asyncio.create_task(gone(request.receive))
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return None
            work.result()
            return answers
        finally:
            for task in (work, watch):
                task.cancel()
            if generation.live:
                generation.cancel()

    # Small routes -----------------------------------------------------------------------------------------------------

    async def root(self, request: Request) -> Response:
        return Json({"name": "dspark-chat", "endpoints": [f"/v1{d.path}" for d in self._dialects]})

    def _count(self, counter: Counter) -> Endpoint:
        async def run(request: Request) -> Response:
            chat = counter.parse(await read_body(request, self.settings), self.context)
            return Json(counter.answer(await self.service.count(chat)))

        return run

    def _side(self, side: Side) -> Endpoint:
        async def run(request: Request) -> Response:
            return Json(side.answers[request.method](self.context, request.path_params))

        return run

    async def tokenize(self, request: Request) -> Response:
        chat = self.admin.parse_tokenize(await read_body(request, self.settings))
        tokens = await self.service.tokens(chat)
        limit = self.service.holder.engine.spec.context
        return Json({"tokens": tokens, "count": len(tokens), "max_model_len": limit})

    async def detokenize(self, request: Request) -> Response:
        return Json(self.admin.detokenize(await read_body(request, self.settings)))


def _left(generation: Generation) -> None:
    log.info("a client left before its answer was complete; its work is stopped")
    generation.cancel()
