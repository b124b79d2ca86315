"""Chat Completions over loopback; the official client is the oracle."""

from __future__ import annotations

import itertools
import json
from typing import Any

import openai
import pytest
from scripted import Script, by_prompt, call_text
from sse_reader import events as sse

from engine.config import Config
from server.settings import Settings

USER = [{"role": "user", "content": "hi"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 8},
                "days": {"type": "integer", "minimum": 0, "maximum": 9},
            },
            "required": ["city", "days"],
        },
    },
}


def client(live: Any) -> openai.OpenAI:
    return live.keep(openai.OpenAI(base_url=f"{live.url}/v1", api_key="x", max_retries=0))


def test_o01_stream_shape_with_and_without_usage(start: Any) -> None:
    live = start(Script("Hello"))
    events = [d for _, d in sse(live, "/v1/chat/completions", {"model": "toy-model", "messages": USER, "stream": True})]
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len({c["id"] for c in chunks}) == 1
    assert len({c["created"] for c in chunks}) == 1
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"][0]["delta"] == {}
    assert all(not c.get("usage") for c in chunks)
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "Hello"

    body = {"messages": USER, "stream": True, "stream_options": {"include_usage": True}}
    events = [d for _, d in sse(live, "/v1/chat/completions", body)]
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"] == []
    usage = events[-2]["usage"]
    assert usage["completion_tokens"] == 6
    assert usage["prompt_tokens"] == len(live.engine.requests[-1].prompt)
    assert usage["prompt_tokens_details"]["cached_tokens"] > 0
    assert events[-3]["choices"][0]["finish_reason"] == "stop"


def test_o39_official_client_reads_the_stream(start: Any) -> None:
    live = start(Script("Hello you"))
    with client(live).chat.completions.stream(
        model="toy-model", messages=USER, stream_options={"include_usage": True}
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "Hello you"
    assert final.usage is not None
    assert final.usage.completion_tokens == 10


def test_o02_logprobs_cover_the_content_and_split_characters(start: Any) -> None:
    live = start(Script("a\u00e4\U0001f600b"))
    found = client(live).chat.completions.create(model="toy-model", messages=USER, logprobs=True, top_logprobs=5)
    entries = found.choices[0].logprobs.content
    assert bytes(b for e in entries for b in e.bytes or ()).decode().startswith("a\u00e4\U0001f600b")
    assert all(e.logprob <= 0 and len(e.top_logprobs) == 5 for e in entries)
    streamed: list[int] = []
    for chunk in client(live).chat.completions.create(
        model="toy-model", messages=USER, logprobs=True, top_logprobs=1, stream=True
    ):
        for entry in (chunk.choices[0].logprobs.content or ()) if chunk.choices[0].logprobs else ():
            streamed += entry.bytes or []
    assert bytes(streamed).decode().startswith("a\u00e4\U0001f600b")


def test_o03_n_choices_count_the_prompt_once(start: Any) -> None:
    live = start(Script("abc"))
    found = client(live).chat.completions.create(model="toy-model", messages=USER, n=3, seed=7)
    assert [c.index for c in found.choices] == [0, 1, 2]
    assert found.usage.prompt_tokens == len(live.engine.requests[0].prompt)
    assert found.usage.completion_tokens == 12
    assert [r.sampling.seed for r in live.engine.requests] == [7, 8, 9]
    assert live.http.post("/v1/chat/completions", json={"messages": USER, "n": 100}).status_code == 400
    events = [d for _, d in sse(live, "/v1/chat/completions", {"messages": USER, "n": 2, "stream": True})]
    texts = ["", ""]
    for event in events[:-1]:
        for choice in event["choices"]:
            texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == ["abc", "abc"]


SCHEMAS = [
    {
        "type": "object",
        "properties": {
            "inner": {
                "type": "object",
                "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
        "required": ["inner"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"c": {"enum": ["red", "green"]}},
        "required": ["c"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
]


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_o05_schema_holds_with_a_drafter(start: Any, schema: dict[str, Any], temperature: float) -> None:
    from jsonschema import validate

    live = start(Script('{"inner": {"x": 12}, "c": "green"}'))
    body = {
        "messages": USER,
        "temperature": temperature,
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": schema}},
        "x_dspark": True,
    }
    found = live.http.post("/v1/chat/completions", json=body).json()
    validate(json.loads(found["choices"][0]["message"]["content"]), schema)
    assert found["choices"][0]["finish_reason"] == "stop"
    if "properties" in schema:
        assert found["x_dspark"]["accepted"] > 0


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"type": "json_schema", "json_schema": {"schema": {"type": "banana"}}}, "response_format"),
        ({"type": "sound"}, "response_format.type"),
        ({"type": "json_schema", "json_schema": {"schema": 123}}, "response_format.json_schema.schema"),
        ({"type": "json_schema"}, "response_format.json_schema"),
    ],
)
def test_o06_bad_formats_name_the_field(start: Any, given: dict[str, Any], field: str) -> None:
    answer = start().http.post("/v1/chat/completions", json={"messages": USER, "response_format": given})
    assert answer.status_code == 400
    assert field in answer.json()["error"]["message"]


BAD_BODIES: list[Any] = [
    [],
    "x",
    None,
    {},
    {"messages": []},
    {"messages": "x"},
    {"messages": [{}]},
    {"messages": [{"role": "user"}]},
    {"messages": [{"role": "user", "content": 123}]},
    {"messages": [{"role": "banana", "content": "x"}]},
    {"messages": [{"role": "user", "content": [{"type": "sound"}]}]},
    {"messages": USER, "temperature": "hot"},
    {"messages": USER, "temperature": -1},
    {"messages": USER, "max_tokens": 0},
    {"messages": USER, "max_tokens": "many"},
    {"messages": USER, "n": 0},
    {"messages": USER, "top_p": 2},
    {"messages": USER, "logit_bias": {"a": 1}},
    {"messages": USER, "logprobs": True, "top_logprobs": 50},
    {"messages": USER, "stop": 5},
    {"messages": USER, "tool_choice": "required"},
    {"messages": USER, "reasoning_effort": "banana"},
    {"messages": USER, "seed": "x"},
]


def test_o07_bad_bodies_are_400_in_openai_shape(start: Any) -> None:
    live = start()
    for body in BAD_BODIES:
        check_bad(live.http.post("/v1/chat/completions", json=body))


def check_bad(answer: Any) -> None:
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    for word in ("Error", "Traceback", "NoneType", "`str`", "`int`", "`float`", "msgspec", "_Message"):
        assert word not in error["message"]


def test_o07_malformed_json(start: Any) -> None:
    live = start()
    for content in (b"", b"{", b"\xff", b'{"messages": [' + b"[" * 5000):
        answer = live.http.post("/v1/chat/completions", content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 400


def test_o08_limits_stops_and_bias_are_honoured(start: Any) -> None:
    live = start(Script("one two three four"))
    create = client(live).chat.completions.create
    assert create(model="toy-model", messages=USER, max_completion_tokens=3).choices[0].message.content == "one"
    assert create(model="toy-model", messages=USER, max_tokens=3).choices[0].finish_reason == "length"
    found = create(model="toy-model", messages=USER, stop=" three")
    assert (found.choices[0].message.content, found.choices[0].finish_reason) == ("one two", "stop")
    assert create(model="toy-model", messages=USER, stop=["xx", "two"]).choices[0].message.content == "one "
    create(model="toy-model", messages=USER, logit_bias={"5": 100, "6": -100})
    assert live.engine.requests[-1].sampling.logit_bias == {5: 100.0, 6: -100.0}


def test_o08_sampling_precedence(start: Any) -> None:
    live = start(settings=Settings(config=Config().over({"temperature": 0.7, "top_k": 20}, "flags")))
    live.engine.generation = {"do_sample": True, "temperature": 0.3, "top_p": 0.9}
    live.http.post("/v1/chat/completions", json={"messages": USER, "temperature": 0})
    sampling = live.engine.requests[-1].sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0, 20, 0.9)
    live.http.post("/v1/chat/completions", json={"messages": USER})
    assert live.engine.requests[-1].sampling.temperature == 0.7


def test_o09_unknown_model_and_aliases(start: Any) -> None:
    live = start(settings=Settings(aliases=("claude-*",)))
    answer = live.http.post("/v1/chat/completions", json={"messages": USER, "model": "gpt-9"})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert live.http.post("/v1/chat/completions", json={"messages": USER, "model": "claude-opus-9"}).status_code == 200
    assert live.http.get("/v1/models").json()["data"][0]["id"] == "toy-model"
    assert [m.id for m in client(live).models.list()] == ["toy-model"]
    assert live.http.get("/v1/models/gpt-9").status_code == 404


def test_o10_images_for_a_text_model_are_refused(start: Any) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    answer = start().http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": [part]}]})
    assert answer.status_code == 400
    assert "image" in answer.json()["error"]["message"]
    part["image_url"]["url"] = "http://example.com/x.png"
    answer = start().http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": [part]}]})
    assert answer.status_code == 400


def test_o35_tool_calls_are_the_same_streamed_and_not(start: Any) -> None:
    text = (
        "I look.\n"
        + call_text("get_weather", {"city": "Bern", "days": 3})
        + "\n"
        + call_text("get_weather", {"city": "Ulm", "days": 1})
    )
    live = start(Script(text, delay=0.03))
    whole = client(live).chat.completions.create(model="toy-model", messages=USER, tools=[TOOL])
    assert whole.choices[0].finish_reason == "tool_calls"
    calls = [(c.function.name, json.loads(c.function.arguments)) for c in whole.choices[0].message.tool_calls]
    assert calls == [("get_weather", {"city": "Bern", "days": 3}), ("get_weather", {"city": "Ulm", "days": 1})]
    with client(live).chat.completions.stream(model="toy-model", messages=USER, tools=[TOOL]) as stream:
        events = list(stream)
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    assert [(c.function.name, json.loads(c.function.arguments)) for c in final.message.tool_calls] == calls
    assert final.message.content.strip() == whole.choices[0].message.content.strip() == "I look."
    assert sum(e.type == "tool_calls.function.arguments.delta" for e in events) > 4
    ids = [c.id for c in final.message.tool_calls]
    assert len(set(ids)) == 2
    assert all(i.startswith("call_") for i in ids)


def test_parallel_tool_calls_off_stops_after_one(start: Any) -> None:
    live = start(Script(call_text("get_weather", {"city": "a", "days": 1}) * 2, delay=0.01, end=False))
    found = client(live).chat.completions.create(
        model="toy-model", messages=USER, tools=[TOOL], parallel_tool_calls=False
    )
    assert len(found.choices[0].message.tool_calls) == 1
    assert found.choices[0].finish_reason == "tool_calls"
    assert found.usage.completion_tokens < 300


def test_quoted_markup_without_tools_stays_text(start: Any) -> None:
    text = "Write <tool_call> and then {} to call."
    found = client(start(Script(text))).chat.completions.create(model="toy-model", messages=USER)
    assert found.choices[0].message.content == text


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_tool_choice_forces_a_call(start: Any, choice: Any) -> None:
    other = {"type": "function", "function": {"name": "other", "parameters": {"type": "object", "properties": {}}}}
    tools = [TOOL, other]
    found = client(start(Script("I would rather talk."))).chat.completions.create(
        model="toy-model", messages=USER, tools=tools, tool_choice=choice
    )
    call = found.choices[0].message.tool_calls[0]
    assert found.choices[0].finish_reason == "tool_calls"
    assert not (found.choices[0].message.content or "").strip()
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather" or choice != "required":
        assert set(arguments) == {"city", "days"}


def test_tool_choice_none_yields_text(start: Any) -> None:
    live = start(Script(call_text("get_weather", {"city": "x", "days": 1})))
    found = client(live).chat.completions.create(model="toy-model", messages=USER, tools=[TOOL], tool_choice="none")
    assert found.choices[0].message.tool_calls is None
    assert found.choices[0].finish_reason == "stop"
    assert "get_weather" not in live.engine.prompts[-1]


def test_o32_truncated_prefilled_thinking_is_reasoning_everywhere(start: Any) -> None:
    from scripted import CHATML

    hard = CHATML.replace(
        "{%- if add_generation_prompt %}<|im_start|>assistant\n",
        "{%- if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% if false %}",
    ).replace("</think>\n\n{% endif %}{% endif %}", "</think>\n\n{% endif %}{% endif %}{% endif %}")
    live = start(Script("hmm " * 50), template=hard)
    found = client(live).chat.completions.create(model="toy-model", messages=USER, max_tokens=20)
    message = found.choices[0].message
    assert not message.content
    assert message.reasoning_content.startswith("hmm hmm")
    assert found.usage.completion_tokens_details.reasoning_tokens > 15
    chunks = list(client(live).chat.completions.create(model="toy-model", messages=USER, max_tokens=20, stream=True))
    assert not "".join(c.choices[0].delta.content or "" for c in chunks)
    answer = live.http.post("/v1/messages", json={"messages": USER, "max_tokens": 20}).json()
    assert answer["content"][0]["type"] == "thinking"
    answer = live.http.post("/v1/responses", json={"input": "hi", "max_output_tokens": 20}).json()
    assert [i["type"] for i in answer["output"]] == ["reasoning"]


def test_thinking_is_split_and_the_switch_reaches_the_template(start: Any) -> None:
    live = start(Script("<think>\nlet me see\n</think>\n\nAnswer"))
    found = client(live).chat.completions.create(model="toy-model", messages=USER)
    assert found.choices[0].message.content == "Answer"
    assert found.choices[0].message.reasoning_content == "let me see"
    client(live).chat.completions.create(
        model="toy-model", messages=USER, extra_body={"chat_template_kwargs": {"enable_thinking": False}}
    )
    assert live.engine.prompts[-1].endswith("<think>\n\n</think>\n\n")


def test_o37_silence_is_filled_with_legal_chunks(start: Any) -> None:
    """While a prompt is read that never ends; and they add nothing to a text that comes."""
    scripts = {"never": Script("never", prefill=3600)}
    live = start(by_prompt(scripts, Script("late", prefill=0.3)), settings=Settings(ping=0.1))
    asked: Any = {"model": "toy-model", "stream": True, "tools": [TOOL]}
    with client(live).chat.completions.create(messages=[{"role": "user", "content": "never"}], **asked) as silent:
        filled = list(itertools.islice(silent, 4))
    assert not any(c.choices[0].delta.content for c in filled)
    chunks = list(client(live).chat.completions.create(messages=USER, **asked))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "late"


def test_progress_is_told_when_asked_for(start: Any) -> None:
    live = start(Script("x", prefill=0.1))
    body = {"messages": USER, "stream": True, "return_progress": True}
    events = [d for _, d in sse(live, "/v1/chat/completions", body)][:-1]
    progress = [e["prompt_progress"] for e in events if "prompt_progress" in e]
    assert progress
    assert progress[-1]["processed"] == progress[-1]["total"]


def test_provenance_block(start: Any) -> None:
    live = start(Script("0123456789" * 3))
    found = live.http.post("/v1/chat/completions", json={"messages": USER, "x_dspark": True}).json()
    block = found["x_dspark"]
    assert sum(n for _, n in block["sources"]) == found["usage"]["completion_tokens"]
    assert sum(n for s, n in block["sources"] if s == "lookup") == block["accepted"] > 0
    assert 0 < block["acceptance"] <= 1
    assert "x_dspark" not in live.http.post("/v1/chat/completions", json={"messages": USER}).json()
    body = {"messages": USER, "stream": True, "x_dspark": True}
    assert any(isinstance(d, dict) and "x_dspark" in d for _, d in sse(live, "/v1/chat/completions", body))


def test_completions(start: Any) -> None:
    live = start(Script(" world"))
    found = client(live).completions.create(model="toy-model", prompt="hello", echo=True, logprobs=2)
    assert found.choices[0].text == "hello world"
    assert len(found.choices[0].logprobs.tokens) >= 6
    chunks = list(client(live).completions.create(model="toy-model", prompt="hello", stream=True))
    assert "".join(c.choices[0].text for c in chunks) == " world"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert live.http.post("/v1/completions", json={"prompt": [104, 105]}).status_code == 200
    for prompt in ("", [], [["a"]], [10**9], 5):
        assert live.http.post("/v1/completions", json={"prompt": prompt}).status_code == 400


def test_structured_outputs_regex_choice_and_grammar(start: Any) -> None:
    live = start(by_prompt({}, "whatever"))
    for structured, fits in (
        ({"regex": "[0-9]{3}-[0-9]{2}"}, lambda t: len(t) == 6 and t[3] == "-"),
        ({"choice": ["yes", "no"]}, lambda t: t in ("yes", "no")),
        ({"grammar": 'start: "a" ("b" | "c") "d"'}, lambda t: t in ("abd", "acd")),
    ):
        body = {"messages": USER, "structured_outputs": structured}
        text = live.http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
        assert fits(text), text
    body = {"messages": USER, "structured_outputs": {"regex": "(("}}
    assert live.http.post("/v1/chat/completions", json=body).status_code == 400


def test_thinking_budget_closes_the_reasoning(start: Any) -> None:
    live = start(Script("<think>\n" + "hmm " * 50))
    body = {"messages": USER, "max_tokens": 60, "thinking_budget": 12}
    message = live.http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    assert message["reasoning_content"] == "hmm hmm hmm"
    assert "hmm hmm" in message["content"]
    body = {"messages": USER, "max_tokens": 60, "thinking": {"type": "enabled", "budget_tokens": 12}}
    blocks = live.http.post("/v1/messages", json=body).json()["content"]
    assert [b["type"] for b in blocks] == ["thinking", "text"]
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    body = {
        "messages": USER,
        "max_tokens": 90,
        "thinking_budget": 12,
        "chat_template_kwargs": {"enable_thinking": True},
    }
    wanted = {"type": "json_schema", "json_schema": {"schema": schema}}
    message = live.http.post("/v1/chat/completions", json={**body, "response_format": wanted}).json()
    assert isinstance(json.loads(message["choices"][0]["message"]["content"])["a"], bool)
    assert message["choices"][0]["message"]["reasoning_content"] == "hmm hmm hmm"
