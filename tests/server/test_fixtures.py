"""Bodies in the shape that real agents send, replayed: they are served, and their prompts grow without changing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted import Script

SHAPES = json.loads((Path(__file__).parents[1] / "golden" / "http" / "shapes.json").read_text())
BODIES = sorted(name for name, shape in SHAPES.items() if shape["method"] == "POST")


def filled(value: Any, name: str) -> Any:
    """A body again: texts of the recorded length (at most 400), tools with a schema."""
    if isinstance(value, str) and value.startswith("<str "):
        size = min(400, int(value[5:-1]))
        return ("text of " + name + " ")[:1] + "x" * (size - 1)
    if isinstance(value, list):
        return [tool(v, name) if is_tool(v) else filled(v, name) for v in value if not is_more(v)]
    if isinstance(value, dict):
        return {k: filled(v, k) for k, v in value.items()}
    return value


def is_more(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("... ")


def is_tool(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and isinstance(value[2], list)


def tool(value: list[Any], _: str) -> dict[str, Any]:
    kind, name, keys = value
    schema = {"type": "object", "properties": {"command": {"type": "string"}, "cmd": {"type": "string"}}}
    found: dict[str, Any] = {"name": name} if name and "function" not in keys else {}
    if kind:
        found["type"] = kind
    for key in keys:
        if key == "tools":
            found[key] = [{"type": "function", "name": "inner", "description": "d", "parameters": schema}]
        elif key == "function":
            found[key] = {"name": name, "description": "d", "parameters": schema}
        elif key in ("input_schema", "parameters"):
            found[key] = schema
        elif key == "strict":
            found[key] = False
        else:
            found[key] = "d" if key == "description" else {"type": "ephemeral"} if key == "cache_control" else True
    return found


@pytest.mark.parametrize("name", BODIES)
def test_c06_recorded_shapes_are_served(start: Any, name: str) -> None:
    live = start(Script("fine"))
    shape = SHAPES[name]
    body = filled(shape["body"], name)
    body["model"] = "toy-model"
    body["never_heard_of_this"] = {"x": [1]}
    answer = live.http.post(shape["path"], json=body)
    assert answer.status_code == 200, answer.read()
    assert "never_heard_of_this" not in answer.text
    body["stream"] = False
    answer = live.http.post(shape["path"], json=body)
    assert answer.status_code == 200
    assert "fine" in answer.text


TURNS = [(n, n.replace("turn1", "turn2")) for n in BODIES if "turn1" in n and n.replace("turn1", "turn2") in BODIES]


@pytest.mark.parametrize(("first", "second"), TURNS)
def test_c02_the_next_turn_reuses_the_prompt(start: Any, first: str, second: str) -> None:
    live = start(Script("fine"))
    for name in (first, second):
        body = filled(SHAPES[name]["body"], name)
        body["model"] = "toy-model"
        assert live.http.post(SHAPES[name]["path"], json={**body, "stream": False}).status_code == 200
    one, two = (len(r.prompt) for r in live.engine.requests[-2:])
    cached = live.engine._cached(list(live.engine.requests[-1].prompt))
    assert cached
    live.engine.history = [list(live.engine.requests[-2].prompt)]
    reused = live.engine._cached(list(live.engine.requests[-1].prompt))
    assert reused >= 0.95 * (one - len("<|im_start|>assistant\n")), (one, two, reused)
