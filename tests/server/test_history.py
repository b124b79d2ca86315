"""History is history: what stands in an earlier turn never makes a request fail; only the newest message is refused."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from PIL import Image
from scripted import CHATML, Script

from engine.chat.history import happened, readable_calls, sent_from

STRICT = CHATML.replace(
    "{{ c.function | tojson }}",
    "{% for k, v in c.function.arguments|items %}{{ k }}={{ v }}{% endfor %}{{ c.function | tojson }}",
)
"""Raises for arguments that are no object, as several published templates do."""
NO_TOOLS = CHATML.replace(
    "{%- if m.role == 'user' %}",
    "{%- if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}{%- if m.role == 'user' %}",
)


def post(live: Any, path: str, **body: Any) -> Any:
    return live.http.post(path, json={"max_tokens": 20, **body} if "messages" in body else body)


ODD = [
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "ODD"}},
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result", "title": "ODD"}]},
    {"type": "search_result", "source": "u", "title": "t", "content": [{"type": "text", "text": "ODD"}]},
    {"type": "mcp_tool_use", "id": "m", "name": "ODD", "server_name": "x", "input": {}},
    {"type": "mcp_tool_result", "tool_use_id": "m", "content": [{"type": "text", "text": "ODD"}]},
    {"type": "container_upload", "file_id": "ODD"},
    {"type": "compaction", "content": "ODD"},
    {"type": "tool_reference", "tool_name": "ODD"},
    {"type": "code_execution_tool_result", "tool_use_id": "s", "content": {"type": "result", "text": "ODD"}},
    {"type": "document", "title": "ODD", "source": {"type": "base64", "data": "AAAA", "media_type": "application/pdf"}},
    {"type": "text", "text": 5, "name": "ODD"},
    {"type": "tool_use", "id": "x", "name": "ODD", "input": "half"},
    {"kind": "unheard of", "name": "ODD"},
    "ODD",
]


@pytest.mark.parametrize("block", ODD, ids=lambda b: b.get("type", "none") if isinstance(b, dict) else "string")
def test_n01_any_block_of_an_earlier_turn_is_read_or_noted(start: Any, block: Any) -> None:
    live = start(Script("hi"))
    question = {"role": "user", "content": "go"}
    answered = [question, {"role": "assistant", "content": [{"type": "text", "text": "so"}, block]}, question]
    asked = [
        {"role": "user", "content": [block, {"type": "text", "text": "so"}]},
        {"role": "assistant", "content": "a"},
    ]
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [block]}]}
    for messages in (answered, [*asked, question], [question, call, result], [question, call, result, *answered]):
        sent = post(live, "/v1/messages", messages=messages)
        assert sent.status_code == 200, sent.text
        assert "ODD" in live.engine.prompts[-1]
        count = live.http.post("/v1/messages/count_tokens", json={"messages": messages})
        assert count.status_code == 200
        assert count.json()["input_tokens"] == len(live.engine.requests[-1].prompt)


@pytest.mark.parametrize("content", [None, 5, {"a": 1}, [], [None], [{}]])
def test_n01_content_of_no_known_shape(start: Any, content: Any) -> None:
    live = start(Script("hi"))
    for role in ("user", "assistant", "system"):
        messages = [
            {"role": "user", "content": "go"},
            {"role": role, "content": content},
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": "on"},
        ]
        for path in ("/v1/messages", "/v1/chat/completions"):
            assert post(live, path, messages=messages).status_code == 200, (path, role)
        assert live.http.post("/v1/responses", json={"input": messages}).status_code == 200, role
        if content is not None and content != []:
            newest = [{"role": "user", "content": content}]
            for path in ("/v1/messages", "/v1/chat/completions"):
                refused = post(live, path, messages=newest)
                assert refused.status_code == 400
                assert "messages[0].content" in refused.json()["error"]["message"]


def test_n02_an_item_reference_is_the_item(start: Any) -> None:
    live = start(Script("first answer"))
    first = live.http.post("/v1/responses", json={"input": "go"}).json()
    item = first["output"][0]
    repeated = [{"role": "user", "content": "go"}, item, {"role": "user", "content": "on"}]
    referred = [repeated[0], {"type": "item_reference", "id": item["id"]}, repeated[2]]
    plain, found = (live.http.post("/v1/responses", json={"input": i}).json() for i in (repeated, referred))
    assert found["usage"]["input_tokens"] == plain["usage"]["input_tokens"]
    assert "first answer" in live.engine.prompts[-1]
    again = live.http.post("/v1/responses", json={"previous_response_id": found["id"], "input": "more"}).json()
    assert again["usage"]["input_tokens"] > found["usage"]["input_tokens"]
    unknown = live.http.post("/v1/responses", json={"input": [{"type": "item_reference", "id": "msg_no"}]})
    assert unknown.status_code == 404
    assert "msg_no" in unknown.json()["error"]["message"]
    assert unknown.json()["error"]["param"] == "input[0].id"


HALF = '{"cmd": "ls'


@pytest.mark.parametrize("arguments", [HALF, "[1]", '"text"', "null", "{", "[" * 9000, 5, None, ["a"]])
@pytest.mark.parametrize("template", [CHATML, STRICT, NO_TOOLS], ids=["chatml", "strict", "no tool role"])
def test_n03_half_a_call_in_the_history_is_text(start: Any, arguments: Any, template: str) -> None:
    live = start(Script("hi"), template=template)
    call = {"id": "1", "type": "function", "function": {"name": "run", "arguments": arguments}}
    whole = {"id": "2", "type": "function", "function": {"name": "other", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call, whole]},
        {"role": "tool", "tool_call_id": "1", "content": "RESULT"},
        {"role": "user", "content": "on"},
    ]
    sent = post(live, "/v1/chat/completions", messages=messages)
    assert sent.status_code == 200, sent.text
    items = [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "1", "name": "run", "arguments": arguments},
        {"type": "function_call_output", "call_id": "1", "output": "RESULT"},
    ]
    assert live.http.post("/v1/responses", json={"input": items}).status_code == 200
    for prompt in live.engine.prompts:
        assert "run" in prompt
        assert "RESULT" in prompt
        assert arguments != HALF or HALF in prompt
    assert '"other"' in live.engine.prompts[0]


def test_n03_only_the_broken_call_becomes_text() -> None:
    calls = [{"function": {"name": n, "arguments": a}} for n, a in (("f", HALF), ("g", "{}"), ("h", ""))]
    read = readable_calls({"role": "assistant", "content": "so", "tool_calls": calls})
    assert [c["function"] for c in read["tool_calls"]] == [{"name": n, "arguments": {}} for n in "gh"]
    assert read["content"] == f"so\n[call of f, cut off: {HALF}]"


def picture() -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def test_n12_pictures_of_earlier_turns_are_notes_for_a_model_that_reads_text(start: Any) -> None:
    live = start(Script("hi"))
    good, bad = f"data:image/png;base64,{picture()}", "data:image/png;base64,aGk="
    for url in (good, bad, "https://example.com/cat.png", "data:image/png;base64,%%"):
        part = {"type": "image_url", "image_url": {"url": url}}
        messages = [
            {"role": "user", "content": [part, {"type": "text", "text": "what is it"}]},
            {"role": "assistant", "content": "a cat"},
            {"role": "user", "content": "on"},
        ]
        assert post(live, "/v1/chat/completions", messages=messages).status_code == 200
        assert live.engine.prompts[-1].count("[picture]") == 1
        assert post(live, "/v1/chat/completions", messages=messages[:1]).status_code == 400
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "screenshot", "input": {}}]}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture()}}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [image]}]}
    sent = post(live, "/v1/messages", messages=[{"role": "user", "content": "go"}, call, result])
    assert sent.status_code == 200
    assert "[picture]" in live.engine.prompts[-1]


def test_what_is_being_sent() -> None:
    u, a, t, s = "user", "assistant", "tool", "system"
    assert [sent_from(r) for r in ([], [u], [s, u], [u, a, u], [u, a, u, a], [u, a, t, u], [a])] == [
        0,
        0,
        0,
        2,
        2,
        2,
        0,
    ]
    assert happened([u, a, t, u]) == [True, True, True, False]
