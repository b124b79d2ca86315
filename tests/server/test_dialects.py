"""A dialect is a package and a row of a table: a toy is served whole, and nothing else in the server names one."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import httpx
import msgspec
from live_server import Live
from scripted import Script, ScriptedEngine, call_text

from server.api.base import decode
from server.api.dialect import Context, Counter, Dialect, Identity, Side
from server.api.dialects import DIALECTS
from server.errors import ApiError, bad
from server.http import sse
from server.settings import Settings
from server.types import Answer, CallStart, Chat, Delta, Text, Tool

ROOT = Path(__file__).parents[2]


# The toy: what a newcomer's package would hold ------------------------------------------------------------------------


class _Say(msgspec.Struct):
    say: str
    live: bool = False


def parse(body: bytes, context: Context) -> Chat:
    request = decode(body, _Say)
    if not request.say:
        raise bad("say: must not be empty.", "say")
    tools = (Tool("f"),) if request.say == "call" else ()
    return Chat(messages=[{"role": "user", "content": request.say}], tools=tools, stream=request.live)


def answer(chat: Chat, answers: list[Answer], identity: Identity) -> dict[str, Any]:
    return {"id": identity.id, "said": answers[0].text, "called": [c.id for c in answers[0].calls()]}


class ToyStream:
    def __init__(self, chat: Chat, identity: Identity) -> None:
        self._id = identity.id

    def open(self) -> list[bytes]:
        return [sse.frame({"id": self._id})]

    def frames(self, choice: int, delta: Delta) -> list[bytes]:
        if isinstance(delta, CallStart):
            return [sse.frame({"call": delta.id})]
        return [sse.frame({"said": delta.text})] if isinstance(delta, Text) else []

    def heartbeat(self) -> list[bytes]:
        return [sse.frame({})]

    def broken(self, error: ApiError) -> list[bytes]:
        return [sse.frame({"oops": error.message})]

    def close(self) -> list[bytes]:
        return [sse.DONE]


TOY = Dialect(
    path="/toy",
    parse=parse,
    answer=answer,
    stream=ToyStream,
    error=lambda error: {"oops": error.message},
    id_prefix="toy-",
    call_prefix="ring_",
    key_header="x-toy-key",
    counter=Counter("/toy/length", parse, lambda count: {"length": count}),
    sides=(Side("/toy/{name}", {"GET": lambda context, path: {"hello": path["name"]}}),),
)


# ----------------------------------------------------------------------------------------------------------------------


def live(play: Any = None, settings: Settings | None = None) -> Live:
    return Live(ScriptedEngine(play), settings or Settings(), dialects=(*DIALECTS, TOY))


def test_a_toy_dialect_is_served_whole_by_its_own_package_and_one_row() -> None:
    server = live(lambda request, prompt: Script(call_text("f", {}) if "call" in prompt else "well said"))
    try:
        http = server.http
        whole = http.post("/v1/toy", json={"say": "hi"}).json()
        assert whole["id"].startswith("toy-")
        assert whole["said"] == "well said"
        assert http.post("/toy", json={"say": "call"}).json()["called"][0].startswith("ring_")
        text = http.post("/toy", json={"say": "hi", "live": True}).text
        assert "toy-" in text
        assert text.endswith("data: [DONE]\n\n")
        assert http.post("/v1/toy/length", json={"say": "hi"}).json()["length"] > 2
        assert http.get("/toy/you").json() == {"hello": "you"}
        for refused in (http.post("/toy", json={"say": ""}), http.put("/v1/toy"), http.post("/toy", json=[])):
            assert refused.status_code in (400, 405)
            assert list(refused.json()) == ["oops"]
        assert "/v1/toy" in http.get("/").json()["endpoints"]
    finally:
        server.close()


def test_its_header_for_the_key_is_known_before_routing() -> None:
    server = live(settings=Settings(keys=("k",)))
    try:
        assert server.http.post("/toy", json={"say": "hi"}).json() == {"oops": "The API key is missing or wrong."}
        for headers in ({"x-toy-key": "k"}, {"authorization": "Bearer k"}, {"x-api-key": "k"}):
            assert server.http.post("/toy", json={"say": "hi"}, headers=headers).status_code == 200
        assert server.http.post("/toy", json={"say": "hi"}, headers={"x-toy-key": "no"}).status_code == 401
    finally:
        server.close()


def test_nothing_outside_its_folder_names_a_dialect() -> None:
    """By module, by path, or by a word for it in code; prose may."""
    names = {path for d in DIALECTS for path in (d.path, f"/v1{d.path}")} | {"anthropic", "openai", "messages_api"}
    packages = {d.parse.__module__.removesuffix(".request") for d in DIALECTS}
    found: list[str] = []
    for module in (ROOT / "server").rglob("*.py"):
        where = module.relative_to(ROOT / "server")
        if where.parts[0] == "api" and where.name != "dialect.py":
            continue
        tree = ast.parse(module.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in names:
                found.append(f"{where}: {node.value}")
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(tuple(packages)):
                found.append(f"{where}: {node.module}")
    assert not found


def test_every_path_belongs_to_one_dialect() -> None:
    for path in ("/v1/chat/completions", "/completions", "/messages/count_tokens", "/v1/responses/resp_1"):
        assert sum(d.owns(path) for d in DIALECTS) == 1
    assert not any(d.owns("/v1/messagesx") or d.owns("/models") for d in DIALECTS)


def test_the_shapes_of_errors_are_those_of_each_dialect(start: Any) -> None:
    http: httpx.Client = start().http
    assert http.post("/v1/messages", json={}).json()["type"] == "error"
    assert http.post("/messages/count_tokens", json={}).json()["error"]["type"] == "invalid_request_error"
    for path in ("/v1/chat/completions", "/completions", "/v1/responses", "/nowhere"):
        assert set(http.post(path, json={}).json()["error"]) == {"message", "type", "param", "code"}
