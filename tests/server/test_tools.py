"""Tool-call syntaxes: every family, every way of cutting the text into pieces, typed values, cut calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import ScriptedEngine

from engine.chat.reasoning import MESSAGES, ThinkSplitter
from engine.errors import UsageError
from server.generation.engine_holder import Holder
from server.tool_calls import FAMILIES, family_of, unknown_syntax
from server.tool_calls.grammar import forced
from server.tool_calls.values import coerce
from server.types import Answer, CallArguments, Reasoning, Tool
from tests.cases import examples

TOOLS = [
    Tool(
        "f",
        "",
        {
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "n": {"type": "integer"},
                "l": {"type": "array"},
                "o": {"type": "object", "properties": {"s": {"type": "string"}}},
            },
        },
    ),
    Tool("g"),
]

CASES: list[tuple[str, str, list[tuple[str, Any]]]] = [
    (
        "hermes",
        'hi <tool_call>\n{"name": "f", "arguments": {"a": "x </tool_call> \\" y\nz", "n": 3, "l": [1, "]"]}}'
        '\n</tool_call>\n<tool_call>{"arguments": {"q": 1}, "name": "g"}</tool_call>',
        [("text", "hi "), ("f", {"a": 'x </tool_call> " y\nz', "n": 3, "l": [1, "]"]}), ("g", {"q": 1})],
    ),
    (
        "hermes",
        '<tool_call>[{"name": "f", "arguments": "{\\"a\\": 1}"}, {"name": "g"}]</tool_call>',
        [("f", {"a": 1}), ("g", {})],
    ),
    (
        "hermes",
        '<tool_call>{"name": "no", "arguments": {}}</tool_call> t',
        [("text", '<tool_call>{"name": "no", "arguments": {}}</tool_call> t')],
    ),
    ("hermes", "say `<tool_call>` and a < b <tool", [("text", "say `<tool_call>` and a < b <tool")]),
    (
        "qwen_coder",
        "t <tool_call>\n<function=f>\n<parameter=a>\nl1\nuse </parameter> here\n  l3\n</parameter>\n<parameter=n>"
        "\n007\n</parameter>\n<parameter=l>\n[1]\n</parameter>\n</function>\n</tool_call>",
        [("text", "t "), ("f", {"a": "l1\nuse </parameter> here\n  l3", "n": "007", "l": [1]})],
    ),
    ("qwen_coder", "<function=f>\n<parameter=n>\n12\n</parameter>\n</function>", [("f", {"n": 12})]),
    (
        "gemma4",
        'x<|tool_call>call:f{a:<|"|>v {} , "q"<|"|>,n:3,l:[1,<|"|>b<|"|>],o:{s:<|"|>t<|"|>}}'
        "<tool_call|><|tool_call>call:g{}<tool_call|>",
        [("text", "x"), ("f", {"a": 'v {} , "q"', "n": 3, "l": [1, "b"], "o": {"s": "t"}}), ("g", {})],
    ),
    (
        "minicpm",
        '<function name="f"><param name="a"><![CDATA[a </param> b]]></param><param name="n">3</param></function>'
        '<function name="g"></function>',
        [("f", {"a": "a </param> b", "n": 3}), ("g", {})],
    ),
    (
        "atem",
        '<atem:function_calls>\n<atem:invoke name="f">\n<atem:parameter name="a"> keep </atem:parameter>'
        '\n<atem:parameter name="l">[1,2]</atem:parameter>'
        "\n</atem:invoke>\n</atem:function_calls>",
        [("f", {"a": " keep ", "l": [1, 2]})],
    ),
    (
        "lfm2",
        '<|tool_call_start|>[f("x, )", n=3, l=[1, (2)]), g()]<|tool_call_end|>done',
        [("f", {"a": "x, )", "n": 3, "l": [1, 2]}), ("g", {}), ("text", "done")],
    ),
    (
        "minimax",
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">v</parameter>\n<parameter name="n">3</parameter>'
        '\n</invoke>\n<invoke name="g">\n</invoke>\n</minimax:tool_call>',
        [("f", {"a": "v", "n": 3}), ("g", {})],
    ),
    (
        "mistral",
        'so [TOOL_CALLS]f[ARGS]{"a": "x", "n": 3}[TOOL_CALLS]g[ARGS]{}',
        [("text", "so "), ("f", {"a": "x", "n": 3}), ("g", {})],
    ),
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"n": 3}}]', [("f", {"n": 3})]),
    ("mistral", "[TOOL_CALLS]no[ARGS]{}", [("text", "[TOOL_CALLS]no[ARGS]{}")]),
    (
        "glm",
        "t<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>5</arg_value>\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>"
        "\n</tool_call><tool_call>g\n</tool_call>",
        [("text", "t"), ("f", {"a": "5", "n": 3}), ("g", {})],
    ),
    (
        "kimi",
        "t<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        '{"a": "x", "n": 3}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}'
        "<|tool_call_end|><|tool_calls_section_end|>",
        [("text", "t"), ("f", {"a": "x", "n": 3}), ("g", {})],
    ),
    (
        "function_gemma",
        "<start_function_call>call:f{a:<escape>x y<escape>,n:3}<end_function_call>",
        [("f", {"a": "x y", "n": 3})],
    ),
    (
        "longcat",
        '<longcat_tool_call>{"name": "f", "arguments": {"n": 3}}</longcat_tool_call>',
        [("f", {"n": 3})],
    ),
    (
        "llama3",
        '<|python_tag|>{"name": "f", "parameters": {"a": "x"}}; {"name": "g", "parameters": {}}',
        [("f", {"a": "x"}), ("g", {})],
    ),
    ("llama3", '{"name": "f", "parameters": {"n": 3}}', [("f", {"n": 3})]),
    ("llama3", 'is {"name": "Ann"} it', [("text", 'is {"name": "Ann"} it')]),
    (
        "gpt_oss",
        'to=functions.f <|constrain|>json<|message|>{"a": "x", "n": 3}',
        [("f", {"a": "x", "n": 3})],
    ),
]


def parse(family: str, pieces: list[str]) -> Answer:
    parser = FAMILIES[family](TOOLS)
    answer = Answer()
    for piece in pieces:
        for delta in parser.feed(piece):
            answer.add(delta)
    for delta in parser.finish():
        answer.add(delta)
    return answer


def seen(answer: Answer) -> list[tuple[str, Any]]:
    return [("text", b.text) if b.kind == "text" else (b.name, json.loads(b.text)) for b in answer.blocks if b.complete]


@pytest.mark.parametrize(("family", "text", "wanted"), CASES)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 10**6])
def test_o35_any_chunking_gives_the_same_calls(family: str, text: str, wanted: list[Any], size: int) -> None:
    assert seen(parse(family, [text[i : i + size] for i in range(0, len(text), size)])) == wanted


@given(st.data())
@examples(60)
def test_random_cuts(data: st.DataObject) -> None:
    family, text, wanted = data.draw(st.sampled_from(CASES))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1), max_size=12)))
    assert seen(parse(family, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])])) == wanted


@given(st.sampled_from(sorted(FAMILIES)), st.text(alphabet='<>|tool_call/{}[]"\\:,=fgn \n', max_size=80))
@examples(150)
def test_no_text_is_an_exception(family: str, text: str) -> None:
    for opener in FAMILIES[family].openers:
        parse(family, [opener + text])
        parse(family, list(text + opener))


@pytest.mark.parametrize(("family", "text", "_"), CASES)
def test_a_call_cut_anywhere_is_whole_or_marked(family: str, text: str, _: Any) -> None:
    for end in range(len(text)):
        answer = parse(family, [text[:end]])
        for block in answer.calls():
            json.loads(block.text)


def test_arguments_stream_before_the_call_ends() -> None:
    for family, text in (
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "long text goes'),
        ("qwen_coder", "<tool_call>\n<function=f>\n<parameter=a>\nlong text goes"),
        ("gemma4", '<|tool_call>call:f{a:<|"|>long text goes'),
    ):
        parser = FAMILIES[family](TOOLS)
        deltas = [d for c in text for d in parser.feed(c)]
        assert "long text" in "".join(d.text for d in deltas if isinstance(d, CallArguments))


STRING, INTEGER = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("007", STRING, "007"),
        ("007", INTEGER, "007"),
        ("7", INTEGER, 7),
        ("7.0", INTEGER, 7),
        ("true", {"type": "boolean"}, True),
        ("True", {"type": "boolean"}, True),
        ("true", STRING, "true"),
        ("[1]", {"type": "array"}, [1]),
        ("[1]", STRING, "[1]"),
        ('{"a": 1}', {"properties": {}}, {"a": 1}),
        ("null", {"type": ["string", "null"]}, None),
        ("x", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "x"),
        ("5", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, 5),
        ("2", {"enum": [1, 2]}, 2),
        ("7", None, 7),
        ("007", None, "007"),
        ("true", None, True),
        ("[1]", None, "[1]"),
        ("1\n2", None, "1\n2"),
        ("1" * 40, None, "1" * 40),
        ("NaN", {"type": "number"}, "NaN"),
    ],
)
def test_o36_values_take_their_type_from_the_schema(text: str, schema: Any, value: Any) -> None:
    found = coerce(text, schema)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("template", "family"),
    [
        ("<tool_call>{json}", "hermes"),
        ("<tool_call>\n<function=", "qwen_coder"),
        ("<|tool_call>call:", "gemma4"),
        ("<|tool_call_start|>", "lfm2"),
        ("<atem:function_calls>", "atem"),
        ('<function name="', "minicpm"),
        ("[TOOL_CALLS]", "mistral"),
        ("<tool_call>{name}\n<arg_key>", "glm"),
        ("<|tool_calls_section_begin|>", "kimi"),
        ("<minimax:tool_call>", "minimax"),
        ("<|start|>assistant to=functions.", "gpt_oss"),
        ("<|python_tag|>", "llama3"),
        ("nothing", "hermes"),
    ],
)
def test_family_follows_the_template(template: str, family: str) -> None:
    assert family_of(template) == family


def test_n13_gpt_oss_calls_come_through_its_channels() -> None:
    raw = (
        "<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        '<|constrain|>json<|message|>{"a": "x"}'
    )
    for size in (1, 3, 8, 500):
        splitter = ThinkSplitter(MESSAGES, header=True)
        parser, answer = FAMILIES["gpt_oss"](TOOLS), Answer()
        parts = [p for i in range(0, len(raw), size) for p in splitter.feed(raw[i : i + size])] + splitter.flush()
        for part in parts:
            assert raw[part.start : part.start + len(part.text)] == part.text
            for delta in [Reasoning(part.text)] if part.kind == "reasoning" else parser.feed(part.text):
                answer.add(delta)
        for delta in parser.finish():
            answer.add(delta)
        (call,) = answer.calls()
        assert (answer.reasoning, answer.text, call.name, json.loads(call.text)) == ("think", "", "f", {"a": "x"})


@pytest.mark.parametrize("family", ["mistral", "llama3", "kimi", "gpt_oss", "minimax"])
def test_n13_a_forced_call_is_one_that_its_parser_reads(family: str) -> None:
    grammar = forced(family, TOOLS[:1], lambda text: None)
    assert "%json" in grammar
    with pytest.raises(UsageError, match="auto"):
        forced("glm", TOOLS[:1], lambda text: None)


def test_n13_an_unknown_syntax_is_said_at_start(caplog: pytest.LogCaptureFixture) -> None:
    assert unknown_syntax("{{ tools }} <<call>>")
    assert not unknown_syntax("{{ tools }} [TOOL_CALLS]")
    assert not unknown_syntax("no place for any")
    Holder().adopt(ScriptedEngine(template="{{ tools }}{{ messages[-1].content }}"))  # pyright: ignore[reportArgumentType]
    assert "arrive as text" in caplog.text
