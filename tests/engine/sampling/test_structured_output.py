"""Constrained answers with drafts: always valid, the same text as constrained plain decoding, and worth drafting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from fakes import ScriptedDrafter
from jsonschema import validate

from engine.drafters.load import load_drafter
from engine.engine import Engine, Options
from engine.errors import UsageError
from engine.load import open_engine
from engine.sampling.structured_output import Gate, Grammars
from engine.types import Finished, Request, Round, Sampling
from tests.cases import thinned

GOLDEN = Path(__file__).parents[2] / "golden"


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SMALL = {"type": "integer", "minimum": 0, "maximum": 99}
SHORT = {"type": "string", "maxLength": 6}
SCHEMAS: list[dict[str, Any]] = [
    closed(a=SMALL),
    closed(a=SMALL, b=SMALL),
    closed(name=SHORT),
    closed(name=SHORT, age=SMALL),
    closed(ok={"type": "boolean"}),
    closed(colour={"enum": ["red", "green", "blue"]}),
    closed(kind={"const": "fixed"}, n=SMALL),
    closed(inner=closed(x=SMALL, y=SMALL)),
    closed(inner=closed(deep=closed(z={"type": "boolean"}))),
    closed(items={"type": "array", "items": SMALL, "minItems": 1, "maxItems": 3}),
    closed(items={"type": "array", "items": SHORT, "maxItems": 2}),
    closed(pairs={"type": "array", "items": closed(k=SHORT, v=SMALL), "minItems": 1, "maxItems": 2}),
    closed(value={"anyOf": [{"type": "boolean"}, {"type": "null"}]}),
    closed(value={"oneOf": [closed(a=SMALL), closed(b={"type": "boolean"})]}),
    closed(word={"type": "string", "pattern": "^[a-c]{3}$"}),
    closed(when={"type": "string", "format": "date"}),
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {"enum": ["yes", "no", 3]},
    {**closed(p={"$ref": "#/$defs/point"}), "$defs": {"point": closed(x=SMALL, y=SMALL)}},
    {"type": "object", "properties": {"a": SMALL, "b": SHORT}, "required": ["a"], "additionalProperties": False},
]


@pytest.fixture(scope="module")
def engine() -> Any:
    with open_engine(GOLDEN / "targets" / "tiny-qwen3", options=Options(max_batch=4)) as opened:
        path = GOLDEN / "drafters" / "dspark-qwen3"
        opened.add_drafter(opened.run_exclusive(lambda: load_drafter(path, opened.target, name="dspark")))
        yield opened


@pytest.fixture(scope="module")
def grammars(engine: Engine) -> Grammars:
    return Grammars(engine.tokenizer, engine.spec.vocab_size, engine.spec.stop_ids)


def run(
    engine: Engine, constraint: Any, drafter: str, temperature: float = 0.0, **kwargs: Any
) -> tuple[str, Any, list[Round]]:
    prompt = engine.format.render([{"role": "user", "content": "Answer as JSON."}])
    sampling = Sampling(temperature=temperature, seed=5 if temperature else None)
    ticket = engine.submit(Request(prompt, 600, sampling, processors=(constraint,), drafter=drafter, cap=4, **kwargs))
    events = list(ticket)
    last = events[-1]
    assert isinstance(last, Finished), last
    return last.text, last, [e for e in events if isinstance(e, Round)]


@pytest.mark.parametrize(("index", "temperature"), thinned(range(len(SCHEMAS)), [0.0, 1.0]))
def test_o05_every_drafter_yields_valid_json_and_the_plain_text(
    engine: Engine, grammars: Grammars, index: int, temperature: float
) -> None:
    schema = SCHEMAS[index]
    grammar = grammars.schema(schema)
    plain, _, _ = run(engine, grammars.constraint(grammar), "none", temperature)
    validate(json.loads(plain), schema)

    def oracle(ids: list[int], k: int) -> list[int]:
        done = len(ids) - len(engine.format.render([{"role": "user", "content": "Answer as JSON."}]))
        return ([*plain.encode()][done : done + k] or [0]) * 1

    engine.add_drafter(ScriptedDrafter(oracle, name="oracle"))
    for drafter in ("dspark", "oracle") if temperature else ("lookup", "dspark", "oracle"):
        text, last, rounds = run(engine, grammars.constraint(grammar), drafter, temperature)
        assert text == plain, drafter
        if drafter == "oracle" and len(plain) > 8:
            assert last.usage.accepted > len(plain) // 2
            assert len(rounds) < len(plain) / 2


def test_acceptance_with_a_learned_drafter_is_above_zero(engine: Engine, grammars: Grammars) -> None:
    accepted = 0
    for schema in SCHEMAS[:5]:
        _, last, _ = run(engine, grammars.constraint(grammars.schema(schema)), "dspark")
        accepted += last.usage.accepted
    assert accepted > 0


def test_rows_of_a_batch_keep_their_own_constraints(engine: Engine, grammars: Grammars) -> None:
    prompt = engine.format.render([{"role": "user", "content": "Answer as JSON."}])
    alone = [run(engine, grammars.constraint(grammars.schema(s)), "dspark")[0] for s in SCHEMAS[:4]]
    tickets = [
        engine.submit(
            Request(prompt, 300, processors=(grammars.constraint(grammars.schema(s)),), drafter="dspark", cap=4)
        )
        for s in SCHEMAS[:4]
    ]
    assert [t.text() for t in tickets] == alone


def test_reasoning_that_ends_inside_a_draft(engine: Engine, grammars: Grammars) -> None:
    """The constraint begins with the token after the closer, wherever in a draft that is."""
    script = [*b"thinking!|", *b'{"a": 7}']
    closer = tuple(b"!|")
    grammar = grammars.schema(closed(a=SMALL))
    for width in range(1, 12):
        constraint = grammars.constraint(grammar, Gate(closer))
        out: list[int] = []
        while len(out) < len(script):
            drafts = script[len(out) : len(out) + width]
            keep = constraint.trim(drafts)
            assert keep == len(drafts), (width, out)
            logits = constraint.rows(mx.zeros((keep + 1, 384)), mx.array(drafts, dtype=mx.int32))
            free = np.isfinite(np.array(logits)).all(axis=-1)
            for i in range(keep + 1):
                at = len(out) + i
                assert free[i] == (at < 10), (width, at)
            constraint.commit(drafts)
            out += drafts
    bad = grammars.constraint(grammar, Gate(closer))
    assert bad.trim([*b"x!|", *b"{z"]) == 4


def test_an_opener_may_come_first_and_only_first(grammars: Grammars) -> None:
    grammar = grammars.schema(closed(a=SMALL))
    opener, closer = 300, (301,)
    constraint = grammars.constraint(grammar, Gate(closer, opener))
    row = np.isfinite(np.array(constraint.rows(mx.zeros((1, 384)), mx.array([], dtype=mx.int32))))[0]
    assert row[opener]
    assert row[ord("{")]
    assert not row[ord("x")]
    constraint.commit([opener])
    assert np.isfinite(np.array(constraint.rows(mx.zeros((1, 384)), mx.array([], dtype=mx.int32)))).all()
    constraint.commit([*b"why"])
    constraint.commit([301])
    row = np.isfinite(np.array(constraint.rows(mx.zeros((1, 384)), mx.array([], dtype=mx.int32))))[0]
    assert not row[opener]
    assert row[ord("{")]
    other = grammars.constraint(grammar, Gate(closer, opener))
    other.commit([*b"{"])
    row = np.isfinite(np.array(other.rows(mx.zeros((1, 384)), mx.array([], dtype=mx.int32))))[0]
    assert not row[opener]


def test_regex_choice_and_lark(engine: Engine, grammars: Grammars) -> None:
    import re

    text, _, _ = run(engine, grammars.constraint(grammars.regex(r"[a-d]{2}-[0-9]{3}")), "lookup")
    assert re.fullmatch(r"[a-d]{2}-[0-9]{3}", text)
    assert run(engine, grammars.constraint(grammars.choice(["yes", "no"])), "lookup")[0] in ("yes", "no")
    assert run(engine, grammars.constraint(grammars.lark('start: "a" /[xy]/ "b"')), "lookup")[0] in ("axb", "ayb")


@pytest.mark.parametrize(
    "make",
    [
        lambda g: g.schema({"type": "banana"}),
        lambda g: g.schema({"type": "object", "properties": []}),
        lambda g: g.regex("(("),
        lambda g: g.lark("start: missing"),
        lambda g: g.choice([]),
    ],
)
def test_what_cannot_be_followed_is_one_sentence(grammars: Grammars, make: Any) -> None:
    with pytest.raises(UsageError) as caught:
        make(grammars)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
