"""Values of arguments: typed from raw text by the tool's schema, and written as JSON. Knows no syntax."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.chat.foreign_text import read_json, whole
from server.types import Tool


def property_schema(tool: Tool, name: str) -> Mapping[str, Any] | None:
    properties = tool.parameters.get("properties")
    found = properties.get(name) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else None


def schema_types(schema: Mapping[str, Any]) -> set[str]:
    """The JSON types that a schema allows at its top; empty when it does not say."""
    kinds: set[str] = set()
    declared = schema.get("type")
    if isinstance(declared, str):
        kinds.add(declared)
    elif isinstance(declared, list):
        kinds |= {k for k in declared if isinstance(k, str)}
    for word in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(word) or ():
            if isinstance(part, Mapping):
                kinds |= schema_types(part)
    for value in schema.get("enum") or ():
        kinds.add(_type_of(value))
    if "const" in schema:
        kinds.add(_type_of(schema["const"]))
    if not kinds and "properties" in schema:
        kinds.add("object")
    return kinds


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return {str: "string", list: "array"}.get(type(value), "object")


def _fits(value: Any, kinds: set[str]) -> bool:
    kind = _type_of(value)
    return kind in kinds or (kind == "integer" and "number" in kinds)


def _read_json(text: str) -> Any:
    words = {"True": True, "False": False, "None": None}
    stripped = text.strip()
    if stripped in words:
        return words[stripped]
    value = read_json(stripped)
    if isinstance(value, float) and value != value:
        raise ValueError(stripped)
    return value


def coerce(text: str, schema: Mapping[str, Any] | None) -> Any:
    """A typed value from raw text. The schema decides; without one only short scalars on one line change."""
    kinds = schema_types(schema) if schema is not None else set[str]()
    if not kinds:
        if "\n" in text or len(text.strip()) > 32:
            return text
        kinds = {"integer", "number", "boolean", "null"}
    if kinds == {"string"}:
        return text
    try:
        value = _read_json(text)
    except ValueError:
        return text
    if isinstance(value, float) and kinds & {"integer"} and "number" not in kinds and value.is_integer():
        value = int(value)
    if _fits(value, kinds - {"string"}):
        return value
    return text


def dump(value: Any) -> str:
    return whole(json.dumps(value, ensure_ascii=False))


def quoted(text: str) -> str:
    """The inside of a JSON string."""
    return dump(text)[1:-1]
