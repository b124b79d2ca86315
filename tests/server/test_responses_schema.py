"""Case R01 in full: each response object and each event, against the published schema and the official models."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from openai import BaseModel
from openai.types.responses import Response, ResponseStreamEvent
from responses_schema import EVENTS, RESPONSE
from scripted import Script, call_text
from sse_reader import events

TOOL = {"type": "function", "name": "run", "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}}}
TOOLS = [
    {**TOOL, "description": "Run", "strict": True},
    TOOL,
    {"type": "function", "name": "bare"},
    {"type": "namespace", "name": "agents", "description": "d", "tools": [{**TOOL, "name": "spawn"}]},
    {"type": "web_search"},
    {"type": "custom", "name": "patch", "description": "free text"},
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
EVERYTHING = (
    "<think>\nhm\n</think>\n\nWords.\n"
    + call_text("run", {"cmd": "ls"})
    + call_text("patch", {"input": "text"})
    + call_text("agents__spawn", {"cmd": "x"})
)
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("Hello there", {}),
    "settings": (
        "Hello",
        {
            "instructions": "Be brief.",
            "metadata": {"topic": "rivers"},
            "reasoning": {"effort": "low", "summary": "auto"},
            "temperature": 0.5,
            "top_p": 0.9,
            "max_output_tokens": 100,
            "user": "someone",
            "safety_identifier": "s1",
            "prompt_cache_key": "k1",
            "store": False,
        },
    ),
    "everything": (EVERYTHING, {"tools": TOOLS}),
    "cut": ("<think>\nso very long a thought", {"max_output_tokens": 4}),
    "forced": ("talk", {"tools": TOOLS[:1], "tool_choice": {"type": "function", "name": "run"}}),
    "object": ("talk", {"text": {"format": {"type": "json_object"}}}),
    "schema": ("talk", {"text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}}}),
}
BEYOND_SDK = {
    # Fields of Open Responses that the SDK does not declare.
    "Response": {"frequency_penalty", "presence_penalty", "store"},
    "ResponseCustomToolCall": {"status"},
    # Earlier versions of the SDK demand it.
    "ResponseFunctionCallArgumentsDoneEvent": {"name"},
}


def declared(union: Any) -> Iterator[type[BaseModel]]:
    inner = typing.get_args(union)
    if typing.get_origin(union) is typing.Annotated:
        yield from declared(inner[0])
    else:
        yield from inner


CLASSES = {typing.get_args(c.model_fields["type"].annotation)[0]: c for c in declared(ResponseStreamEvent)}


def unknown(value: Any) -> Iterator[tuple[str, str]]:
    """(class, field) of everything that the official models have no place for."""
    if isinstance(value, BaseModel):
        for name in value.model_extra or {}:
            if name not in BEYOND_SDK.get(type(value).__name__, ()):
                yield type(value).__name__, name
        for name in type(value).model_fields:
            yield from unknown(getattr(value, name))
    elif isinstance(value, list):
        for one in value:
            yield from unknown(one)


def strictly(model: type[BaseModel], data: dict[str, Any]) -> Any:
    """The official model of this very class: no coercion, nothing missing, nothing that it does not know."""
    found = model.model_validate(data, strict=True)
    assert not list(unknown(found))
    return found


def no_missing_field(schema: dict[str, Any], data: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(schema).validate(data)


@pytest.mark.parametrize("name", REQUESTS)
def test_r01_response_follows_the_open_responses_schema(start: Any, name: str) -> None:
    text, fields = REQUESTS[name]
    body = start(Script(text)).http.post("/v1/responses", json={"input": "hi", **fields}).json()
    no_missing_field(RESPONSE, body)
    assert body["usage"] is not None
    assert (body["completed_at"] is None) == (body["status"] != "completed")


@pytest.mark.parametrize("name", REQUESTS)
def test_r01_response_is_the_official_model_strictly(start: Any, name: str) -> None:
    text, fields = REQUESTS[name]
    body = start(Script(text)).http.post("/v1/responses", json={"input": "hi", **fields}).json()
    strictly(Response, body)


@pytest.mark.parametrize("name", REQUESTS)
def test_r01_events_follow_the_open_responses_schema(start: Any, name: str) -> None:
    text, fields = REQUESTS[name]
    for kind, data in events(start(Script(text)), "/v1/responses", {"input": "hi", "stream": True, **fields}):
        no_missing_field(EVENTS[kind], data)


@pytest.mark.parametrize("name", REQUESTS)
def test_r01_events_are_the_official_models_strictly(start: Any, name: str) -> None:
    text, fields = REQUESTS[name]
    for kind, data in events(start(Script(text)), "/v1/responses", {"input": "hi", "stream": True, **fields}):
        strictly(CLASSES[kind], data)


def test_r01_every_kind_of_event_was_judged(start: Any) -> None:
    seen: set[str] = set()
    for text, fields in (REQUESTS["everything"], REQUESTS["cut"]):
        seen |= {k for k, _ in events(start(Script(text)), "/v1/responses", {"input": "x", "stream": True, **fields})}
    assert seen == EVENTS.keys() - {"response.failed"}


def test_r01_failure_in_the_stream_follows_both(start: Any) -> None:
    found = events(start(Script("words " * 9, fail_after=6)), "/v1/responses", {"input": "hi", "stream": True})
    kind, data = found[-1]
    assert kind == "response.failed"
    no_missing_field(EVENTS[kind], data)
    assert strictly(CLASSES[kind], data).response.error.code == "server_error"


def test_r01_what_was_asked_is_repeated(start: Any) -> None:
    text, fields = REQUESTS["settings"]
    body = start(Script(text)).http.post("/v1/responses", json={"input": "hi", **fields}).json()
    repeated = {key: body[key] for key in fields if key != "reasoning"}
    assert repeated == {key: value for key, value in fields.items() if key != "reasoning"}
    assert body["reasoning"]["effort"] == "low"


def test_r01_a_field_that_is_missing_or_unknown_would_be_seen(start: Any) -> None:
    body = start(Script("x")).http.post("/v1/responses", json={"input": "hi"}).json()
    with pytest.raises(jsonschema.ValidationError):
        no_missing_field(RESPONSE, {k: v for k, v in body.items() if k != "truncation"})
    with pytest.raises(jsonschema.ValidationError):
        no_missing_field(RESPONSE, {**body, "surprise": 1})
    with pytest.raises(AssertionError):
        strictly(Response, {**body, "surprise": 1})
