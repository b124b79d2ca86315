"""OpenAI Responses over loopback; the official client is the oracle."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from scripted import Script, call_text
from sse_reader import events

from server.settings import Settings

TOOL = {
    "type": "function",
    "name": "run",
    "description": "Run",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"cmd": {"type": "string", "maxLength": 12}},
        "required": ["cmd"],
    },
}


def client(live: Any) -> openai.OpenAI:
    return live.keep(openai.OpenAI(base_url=f"{live.url}/v1", api_key="x", max_retries=0))


def stream(live: Any, **fields: Any) -> list[dict[str, Any]]:
    """Raw events, each checked by the official parser, numbered without a gap, with consistent item ids."""
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    found = events(live, "/v1/responses", {"input": "hi", **fields, "stream": True})
    for number, (name, data) in enumerate(found):
        assert name == data["type"]
        assert data["sequence_number"] == number
        adapter.validate_python(data)
    out = [d for _, d in found]
    check_items(out)
    return out


def check_items(found: list[dict[str, Any]]) -> None:
    open_item: dict[str, Any] | None = None
    count = 0
    for event in found:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert open_item is None
            assert event["output_index"] == count
            open_item = event["item"]
        elif kind == "response.output_item.done":
            assert open_item is not None
            assert event["item"]["id"] == open_item["id"]
            open_item = None
            count += 1
        elif "item_id" in event:
            assert open_item is not None
            assert event["item_id"] == open_item["id"]
            assert event["output_index"] == count
    assert open_item is None
    assert len(found[-1]["response"]["output"]) == count


def test_r01_non_streamed_response(start: Any) -> None:
    live = start(Script("Hello"))
    body = live.http.post("/v1/responses", json={"input": "hi", "model": "toy-model"}).json()
    assert body["id"].startswith("resp_")
    assert (body["object"], body["status"]) == ("response", "completed")
    assert body["output"][0]["content"][0] == {
        "type": "output_text",
        "text": "Hello",
        "annotations": [],
        "logprobs": [],
    }
    assert isinstance(body["usage"]["input_tokens_details"]["cached_tokens"], int)
    TypeAdapter(Response).validate_python(body)
    found = client(live).responses.create(model="toy-model", input="hi")
    assert found.output_text == "Hello"
    assert found.usage.input_tokens_details.cached_tokens > 0


def test_r02_streamed_response(start: Any) -> None:
    live = start(Script("Hello there"))
    found = stream(live)
    kinds = [e["type"] for e in found]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert "".join(e["delta"] for e in found[4:-4]) == "Hello there" == found[-4]["text"]
    assert stream(live, max_output_tokens=3)[-1]["type"] == "response.incomplete"
    with client(live).responses.stream(model="toy-model", input="hi") as s:
        for _ in s:
            pass
        assert s.get_final_response().output_text == "Hello there"


def test_r02_reasoning_text_and_calls_in_order(start: Any) -> None:
    text = (
        "<think>\nhm\n</think>\n\nWords.\n" + call_text("run", {"cmd": "ls"}) + "\n" + call_text("run", {"cmd": "pwd"})
    )
    live = start(Script(text, delay=0.03))
    found = stream(live, tools=[TOOL])
    assert [i["type"] for i in found[-1]["response"]["output"]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    pieces = [e["delta"] for e in found if e["type"] == "response.function_call_arguments.delta"]
    assert len(pieces) > 4
    done = [json.loads(e["arguments"]) for e in found if e["type"] == "response.function_call_arguments.done"]
    assert done == [{"cmd": "ls"}, {"cmd": "pwd"}]
    whole = live.http.post("/v1/responses", json={"input": "hi", "tools": [TOOL]}).json()
    shape = [(i["type"], i.get("arguments")) for i in whole["output"]]
    assert shape == [(i["type"], i.get("arguments")) for i in found[-1]["response"]["output"]]


def test_o107_pure_tool_turn_has_no_empty_message(start: Any) -> None:
    live = start(Script(call_text("run", {"cmd": "ls"})))
    assert [i["type"] for i in stream(live, tools=[TOOL])[-1]["response"]["output"]] == ["function_call"]


def test_r03_history_namespaces_and_vendor_tools(start: Any) -> None:
    live = start(Script(call_text("agents__spawn", {"cmd": "x"})))
    tools = [
        TOOL,
        {"type": "namespace", "name": "agents", "description": "d", "tools": [{**TOOL, "name": "spawn"}]},
        {"type": "web_search"},
        {"type": "custom", "name": "patch", "description": "free text"},
    ]
    items = [
        {"role": "system", "content": "You help."},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "DEV"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "thought"}], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "run", "arguments": '{"cmd": "ls"}', "status": "completed"},
        {"type": "function_call", "call_id": "c2", "name": "spawn", "namespace": "agents", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "RESULT-1"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "RESULT-2"}]},
        {"type": "web_search_call", "status": "completed"},
    ]
    found = stream(live, input=items, tools=tools)
    call = found[-1]["response"]["output"][0]
    assert (call["name"], call["namespace"]) == ("spawn", "agents")
    prompt = live.engine.prompts[-1]
    assert prompt.index("You help.") < prompt.index("DEV") < prompt.index("go") < prompt.index("RESULT-1")
    assert prompt.index("RESULT-1") < prompt.index("RESULT-2")
    assert '"agents__spawn"' in prompt
    assert "web_search" not in prompt
    assert prompt.count("<|im_start|>assistant") == 2

    live.engine.play = lambda request, prompt: Script(call_text("patch", {"input": "*** Begin\n+x"}))
    found = stream(live, tools=tools)
    call = found[-1]["response"]["output"][0]
    assert (call["type"], call["input"]) == ("custom_tool_call", "*** Begin\n+x")
    again = [
        {"role": "user", "content": "go"},
        call,
        {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "ok"},
    ]
    assert live.http.post("/v1/responses", json={"input": again, "tools": tools}).status_code == 200


def test_r03_tool_choice(start: Any) -> None:
    live = start(Script("I would rather talk."))
    for choice in ("required", {"type": "function", "name": "run"}):
        body = live.http.post("/v1/responses", json={"input": "hi", "tools": [TOOL], "tool_choice": choice}).json()
        assert [i["type"] for i in body["output"]] == ["function_call"]
        assert isinstance(json.loads(body["output"][0]["arguments"])["cmd"], str)


def test_r04_stored_responses(start: Any) -> None:
    live = start(Script("Hello"), settings=Settings(stored=2))
    post = live.http.post
    unknown = post("/v1/responses", json={"input": "hi", "previous_response_id": "resp_none"})
    assert unknown.status_code == 404
    assert unknown.json()["error"]["param"] == "previous_response_id"
    first = post("/v1/responses", json={"input": "ALPHA", "store": True}).json()
    assert live.http.get(f"/v1/responses/{first['id']}").json() == first
    second = post("/v1/responses", json={"input": "BETA", "previous_response_id": first["id"]}).json()
    prompt = live.engine.prompts[-1]
    assert prompt.index("ALPHA") < prompt.index("Hello") < prompt.index("BETA")
    assert second["previous_response_id"] == first["id"]
    streamed = stream(live, input="GAMMA", previous_response_id=second["id"])[-1]["response"]
    assert live.http.get(f"/v1/responses/{streamed['id']}").json() == streamed
    assert live.http.get(f"/v1/responses/{first['id']}").status_code == 404, "the oldest goes first"
    hidden = post("/v1/responses", json={"input": "hi", "store": False}).json()
    assert live.http.get(f"/v1/responses/{hidden['id']}").status_code == 404
    assert live.http.delete(f"/v1/responses/{streamed['id']}").json()["deleted"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input": 5},
        {"input": []},
        {"input": ["x"]},
        {"input": [{"type": "message", "role": "banana", "content": "x"}]},
        {"input": [{"type": "message", "role": "user"}]},
        {"input": [{"type": "function_call_output", "output": "x"}]},
        {"input": [{"role": "user", "content": [{"type": "sound"}]}]},
        {"input": [{"type": 5}]},
        {"input": "x", "temperature": 1000},
        {"input": "x", "max_output_tokens": 0},
        {"input": "x", "text": {"format": {"type": "sound"}}},
        {"input": "x", "text": {"format": {"type": "json_schema", "schema": 5}}},
        {"input": "x", "tools": [{"name": "x"}]},
        {"input": "x", "reasoning": {"effort": "banana"}},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,aGk="}]}]},
    ],
)
def test_bad_bodies(start: Any, body: Any) -> None:
    answer = start().http.post("/v1/responses", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_schema_output(start: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    live = start(Script("no json at all"))
    body = {"input": "hi", "text": {"format": {"type": "json_schema", "name": "s", "schema": schema, "strict": True}}}
    text = live.http.post("/v1/responses", json=body).json()["output"][0]["content"][0]["text"]
    assert isinstance(json.loads(text)["a"], bool)


def test_input_tokens_equal_the_usage(start: Any) -> None:
    live = start(Script("x"))
    body = {"input": "hi", "instructions": "be brief", "tools": [TOOL]}
    counted = live.http.post("/v1/responses/input_tokens", json=body).json()
    assert counted["input_tokens"] == live.http.post("/v1/responses", json=body).json()["usage"]["input_tokens"]
