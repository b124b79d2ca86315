"""Anthropic Messages over loopback; the official client is the oracle."""

from __future__ import annotations

import itertools
import json
from typing import Any

import anthropic
import pytest
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter
from scripted import Script, by_prompt, call_text
from sse_reader import events

from server.settings import Settings

USER = [{"role": "user", "content": "hi"}]
TOOL = {
    "name": "run",
    "description": "Run a command",
    "input_schema": {
        "type": "object",
        "properties": {"command": {"type": "string", "maxLength": 12}},
        "required": ["command"],
    },
}
BASE: dict[str, Any] = {"model": "toy-model", "max_tokens": 400, "messages": USER}


def client(live: Any) -> anthropic.Anthropic:
    return live.keep(anthropic.Anthropic(base_url=live.url, api_key="x", max_retries=0))


def stream(live: Any, **fields: Any) -> list[dict[str, Any]]:
    """Raw events, each checked by the official parser and by the grammar of a message stream."""
    adapter: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    found = events(live, "/v1/messages", {**BASE, **fields, "stream": True})
    for name, data in found:
        assert name == data["type"]
        if name not in ("ping", "error"):
            adapter.validate_python(data)
    check_grammar([d for _, d in found if d["type"] != "ping"])
    return [d for _, d in found]


def check_grammar(found: list[dict[str, Any]]) -> None:
    kinds = [e["type"] for e in found]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    index = -1
    is_open = False
    for event in found[1:-2]:
        if event["type"] == "content_block_start":
            assert not is_open
            index += 1
            is_open = True
        assert event["index"] == index
        assert is_open
        if event["type"] == "content_block_stop":
            is_open = False
    assert not is_open
    assert index >= 0


def text_of(found: list[dict[str, Any]]) -> str:
    return "".join(e["delta"].get("text", "") for e in found if e["type"] == "content_block_delta")


def test_a01_non_streamed_message(start: Any) -> None:
    live = start(Script("Hello"))
    body = live.http.post("/v1/messages", json=BASE).json()
    assert (body["type"], body["role"]) == ("message", "assistant")
    assert body["content"] == [{"type": "text", "text": "Hello"}]
    assert body["stop_reason"] == "end_turn"
    assert "timings" not in body
    for key in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
        assert isinstance(body["usage"][key], int)
    assert client(live).messages.create(**BASE).content[0].text == "Hello"


def test_a02_streamed_message(start: Any) -> None:
    live = start(Script("Hello there"))
    assert text_of(stream(live, temperature=0)) == "Hello there"
    with client(live).messages.stream(**BASE) as found:
        assert found.get_final_text() == "Hello there"


def test_a03_counts_agree_everywhere(start: Any) -> None:
    live = start(Script("x"))
    counted = live.http.post("/v1/messages/count_tokens", json={"messages": USER, "system": "be brief"}).json()
    assert list(counted) == ["input_tokens"]
    for _ in range(2):
        found = stream(live, system="be brief")
        for usage in (found[0]["message"]["usage"], found[-2]["usage"]):
            total = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
            assert total == counted["input_tokens"]
    assert found[0]["message"]["usage"]["cache_read_input_tokens"] > 0


@pytest.mark.parametrize("kind", ["enabled", "adaptive", "disabled"])
def test_a04_thinking(start: Any, kind: str) -> None:
    live = start(Script("<think>\nlet me\n</think>\n\nAnswer", block=1))
    found = stream(live, thinking={"type": kind, **({"budget_tokens": 1024} if kind == "enabled" else {})})
    starts = [e["content_block"]["type"] for e in found if e["type"] == "content_block_start"]
    assert text_of(found) == "Answer"
    if kind == "disabled":
        assert starts == ["text"]
        assert live.engine.prompts[-1].endswith("</think>\n\n")
        return
    assert starts == ["thinking", "text"]
    deltas = [e["delta"] for e in found if e["type"] == "content_block_delta"]
    assert "".join(d.get("thinking", "") for d in deltas) == "let me"
    assert [d["type"] for d in deltas].count("signature_delta") == 1
    signed = next(i for i, e in enumerate(found) if e.get("delta", {}).get("type") == "signature_delta")
    assert found[signed + 1]["type"] == "content_block_stop"


def test_a05_tool_call_streams_its_input(start: Any) -> None:
    live = start(Script("Let me.\n" + call_text("run", {"command": 'echo <tool_call> "x"'}), delay=0.03))
    found = stream(live, tools=[TOOL])
    block = next(e for e in found if e["type"] == "content_block_start" and e["content_block"]["type"] == "tool_use")
    assert block["content_block"]["input"] == {}
    assert block["content_block"]["id"].startswith("toolu_")
    pieces = [e["delta"]["partial_json"] for e in found if e.get("delta", {}).get("type") == "input_json_delta"]
    assert len(pieces) > 2
    assert json.loads("".join(pieces)) == {"command": 'echo <tool_call> "x"'}
    assert found[-2]["delta"]["stop_reason"] == "tool_use"
    message = client(live).messages.create(**BASE, tools=[TOOL])
    assert message.content[1].input == {"command": 'echo <tool_call> "x"'}
    assert message.stop_reason == "tool_use"


def test_a06_results_come_before_text(start: Any) -> None:
    live = start(Script("done"))
    messages = [
        *USER,
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "a", "name": "run", "input": {"command": "one"}},
                {"type": "tool_use", "id": "b", "name": "run", "input": {"command": "two"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "go on"},
                {"type": "tool_result", "tool_use_id": "a", "content": "RESULT-A", "is_error": True},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "RESULT-B"}]},
            ],
        },
    ]
    assert live.http.post("/v1/messages", json={**BASE, "messages": messages, "tools": [TOOL]}).status_code == 200
    prompt = live.engine.prompts[-1]
    assert prompt.index("Error: RESULT-A") < prompt.index("RESULT-B") < prompt.index("go on")
    messages[2]["content"][2]["content"].append(
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    )
    assert live.http.post("/v1/messages", json={**BASE, "messages": messages, "tools": [TOOL]}).status_code == 200
    assert "[picture]" in live.engine.prompts[-1], "what a tool gave back has happened"


def test_a07_tool_choice(start: Any) -> None:
    live = start(Script("I would rather talk."))
    for choice in ({"type": "any"}, {"type": "tool", "name": "run"}):
        body = live.http.post("/v1/messages", json={**BASE, "tools": [TOOL], "tool_choice": choice}).json()
        assert [b["type"] for b in body["content"]] == ["tool_use"]
        assert isinstance(body["content"][0]["input"]["command"], str)
        assert body["stop_reason"] == "tool_use"
    body = live.http.post("/v1/messages", json={**BASE, "tools": [TOOL], "tool_choice": {"type": "none"}}).json()
    assert [b["type"] for b in body["content"]] == ["text"]
    bad = live.http.post("/v1/messages", json={**BASE, "tools": [TOOL], "tool_choice": {"type": "tool", "name": "no"}})
    assert bad.status_code == 400


def test_a08_late_system_message_keeps_the_prefix(start: Any) -> None:
    live = start(Script("ok"))
    turns = [*USER, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "and?"}]
    late = [*turns[:2], {"role": "system", "content": "REMINDER"}, turns[2]]
    for messages in (turns, late):
        assert live.http.post("/v1/messages", json={**BASE, "system": "S", "messages": messages}).status_code == 200
    plain, with_late = live.engine.prompts[-2:]
    assert "REMINDER" in with_late
    shared = plain.index("and?")
    assert with_late[: shared - 30] == plain[: shared - 30]


def test_a09_overflow_wording_before_any_event(start: Any) -> None:
    live = start(Script("x"), context=64)
    body = {**BASE, "stream": True, "messages": [{"role": "user", "content": "w" * 100}]}
    answer = live.http.post("/v1/messages", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith("prompt is too long: ")
    assert "tokens > 64 maximum" in error["message"]
    answer = live.http.post("/v1/chat/completions", json={"messages": body["messages"]})
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert live.http.post("/v1/responses", json={"input": "w" * 100}).status_code == 400
    assert live.http.post("/v1/completions", json={"prompt": "w" * 100}).status_code == 400


def test_a10_stop_sequence_inside_a_draft_block(start: Any) -> None:
    live = start(Script("one STOP two", block=12))
    body = live.http.post("/v1/messages", json={**BASE, "stop_sequences": ["STOP"]}).json()
    assert body["content"] == [{"type": "text", "text": "one "}]
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", "STOP")
    assert body["usage"]["output_tokens"] == 8
    found = stream(live, stop_sequences=["STOP"])
    assert text_of(found) == "one "
    assert found[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "STOP"}
    assert stream(live, max_tokens=3)[-2]["delta"]["stop_reason"] == "max_tokens"


def test_a11_count_tokens_with_everything(start: Any) -> None:
    live = start(Script("x"))
    fields = {"messages": USER, "system": [{"type": "text", "text": "be"}], "tools": [TOOL]}
    counted = live.http.post("/v1/messages/count_tokens", json=fields).json()
    usage = live.http.post("/v1/messages", json={**BASE, **fields}).json()["usage"]
    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}
    assert client(live).messages.count_tokens(model="toy-model", **fields).input_tokens == counted["input_tokens"]
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    refused = live.http.post("/v1/messages/count_tokens", json={"messages": [{"role": "user", "content": [picture]}]})
    assert refused.status_code == 400


def test_a12_keys(start: Any) -> None:
    live = start(Script("x"), settings=Settings(keys=("first", "second")))
    for headers, status in (
        ({"x-api-key": "first"}, 200),
        ({"authorization": "Bearer second"}, 200),
        ({"authorization": "bearer second"}, 200),
        ({}, 401),
        ({"x-api-key": "firs"}, 401),
        ({"authorization": "Bearer first2"}, 401),
        ({"authorization": "Basic first"}, 401),
    ):
        answer = live.http.post("/v1/messages", json=BASE, headers=headers)
        assert answer.status_code == status
        if status == 401:
            assert answer.json()["type"] == "error"
            assert answer.json()["error"]["type"] == "authentication_error"
    assert live.http.get("/health").status_code == 200
    for path in ("/metrics", "/v1/models", "/admin/status"):
        assert live.http.get(path).status_code == 401


def test_a12_keys_are_compared_in_constant_time() -> None:
    import inspect

    from server.http import middleware

    assert "hmac.compare_digest" in inspect.getsource(middleware._matches)


def test_a13_routes_as_the_agent_uses_them(start: Any) -> None:
    live = start(Script("x"))
    assert live.http.head("/").status_code == 200
    assert live.http.post("/v1/messages?beta=true", json=BASE).status_code == 200
    assert live.http.post("/v1/messages/", json=BASE).status_code == 200
    refused = live.http.get("/v1/messages")
    assert refused.status_code == 405
    assert "POST" in refused.headers["allow"]
    assert refused.json()["type"] == "error"
    assert live.http.post("/v1/messages", json={**BASE, "brand_new_field": {"a": 1}}).status_code == 200
    assert live.http.get("/nowhere").json()["error"]["type"] == "not_found_error"


def test_a14_silent_prefill_pings(start: Any) -> None:
    """While a prompt is read that never ends."""
    live = start(Script("late", prefill=3600), settings=Settings(ping=0.1))
    with live.http.stream("POST", "/v1/messages", json={**BASE, "stream": True}) as response:
        lines = (line[7:] for line in response.iter_lines() if line.startswith("event: "))
        kinds = list(itertools.islice(lines, 4))
    assert kinds[0] in ("message_start", "ping")
    assert kinds[1:] == ["ping"] * 3


def test_error_in_the_stream_and_before_it(start: Any) -> None:
    live = start(by_prompt({"early": Script("x", fail_after=0), "late": Script("some text", fail_after=5)}))
    answer = live.http.post("/v1/messages", json={**BASE, "messages": [{"role": "user", "content": "late"}]})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    body = {**BASE, "stream": True, "messages": [{"role": "user", "content": "late"}]}
    found = events(live, "/v1/messages", body)
    assert found[-1][0] == "error"
    assert found[-1][1]["error"]["type"] == "api_error"
    chat = {"messages": body["messages"], "stream": True}
    assert "error" in [d for _, d in events(live, "/v1/chat/completions", chat)][-2]
    found = events(live, "/v1/responses", {"input": "late", "stream": True})
    assert found[-1][0] == "response.failed"
    with (
        pytest.raises(anthropic.APIStatusError),
        client(live).messages.stream(**{**BASE, "messages": body["messages"]}) as s,
    ):
        s.get_final_text()


def test_o41_billing_block_is_dropped_and_nothing_else(start: Any) -> None:
    live = start(Script("ok"))

    def cached(first: str) -> int:
        system = [{"type": "text", "text": first}, {"type": "text", "text": "You are an agent. " * 20}]
        return live.http.post("/v1/messages", json={**BASE, "system": system}).json()["usage"][
            "cache_read_input_tokens"
        ]

    cached("x-anthropic-billing-header: cc_version=2.1.197; cch=1;")
    assert cached("x-anthropic-billing-header: cc_version=2.1.197; cch=2;") > 300
    assert "billing" not in live.engine.prompts[-1]
    cached("x-anthropic-billing-header: is what you must explain.\nSecond line.")
    assert "Second line." in live.engine.prompts[-1]
    cached("About the x-anthropic-billing-header: text")
    assert "About the x-anthropic-billing-header" in live.engine.prompts[-1]


def test_moving_cache_control_does_not_change_the_prompt(start: Any) -> None:
    live = start(Script("ok"))
    mark = {"cache_control": {"type": "ephemeral"}}
    first = [{"role": "user", "content": [{"type": "text", "text": "one", **mark}]}]
    second = [
        {"role": "user", "content": [{"type": "text", "text": "one"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "ok"}]},
        {"role": "user", "content": [{"type": "text", "text": "two", **mark}]},
    ]
    for messages in (first, second):
        live.http.post("/v1/messages", json={**BASE, "messages": messages})
    one, two = live.engine.prompts[-2:]
    assert two.startswith(one.removesuffix("<|im_start|>assistant\n"))


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"type": "banana"}, "messages[0].content[0].type"),
        ({"type": "text"}, "messages[0].content[0]"),
        ({"type": "text", "text": 5}, "messages[0].content[0].text"),
        ({"type": "image", "source": {"type": "base64", "data": "###"}}, "messages[0].content[0].source.data"),
        ({"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}, "messages[0].content[0].source.url"),
    ],
)
def test_c06_unknown_blocks_name_their_path(start: Any, block: dict[str, Any], field: str) -> None:
    answer = start().http.post("/v1/messages", json={**BASE, "messages": [{"role": "user", "content": [block]}]})
    assert answer.status_code == 400
    assert field in answer.json()["error"]["message"]
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "order", ["thinking text call call", "call text", "text call", "thinking call", "call", "thinking", ""]
)
def test_o42_block_numbers_have_no_gaps(start: Any, order: str) -> None:
    parts = {
        "thinking": "<think>\nhm\n</think>\n\n",
        "text": "Words.\n",
        "call": call_text("run", {"command": "ls"}) + "\n",
    }
    live = start(Script("".join(parts[p] for p in order.split())))
    found = stream(live, tools=[TOOL])
    kinds = [e["content_block"]["type"] for e in found if e["type"] == "content_block_start"]
    wanted = {"thinking": "thinking", "text": "text", "call": "tool_use"}
    assert kinds == ([wanted[p] for p in order.split()] or ["text"])
    with client(live).messages.stream(**BASE, tools=[TOOL]) as s:
        message = s.get_final_message()
    assert all(b.id for b in message.content if b.type == "tool_use")
    assert sum(b.type == "tool_use" for b in message.content) == order.split().count("call")


def test_effort_reaches_a_template_that_knows_it(start: Any) -> None:
    from scripted import CHATML

    live = start(
        Script("x"), template="{{ 'EFFORT=' ~ reasoning_effort if reasoning_effort is defined else '' }}" + CHATML
    )
    live.http.post("/v1/messages", json={**BASE, "output_config": {"effort": "high"}})
    assert live.engine.prompts[-1].startswith("EFFORT=high")
    live.http.post("/v1/messages", json={**BASE, "output_config": {"effort": "banana"}})
    assert live.engine.prompts[-1].startswith("<|im_start|>")
    live.http.post("/v1/chat/completions", json={"messages": USER, "reasoning_effort": "low"})
    assert live.engine.prompts[-1].startswith("EFFORT=low")
    live.http.post("/v1/responses", json={"input": "hi", "reasoning": {"effort": "medium"}})
    assert live.engine.prompts[-1].startswith("EFFORT=medium")


def test_schema_output(start: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    live = start(Script("no json at all"))
    for fields in (
        {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        {"output_format": {"type": "json_schema", "schema": schema}},
    ):
        text = live.http.post("/v1/messages", json={**BASE, **fields}).json()["content"][0]["text"]
        assert isinstance(json.loads(text)["a"], bool)
