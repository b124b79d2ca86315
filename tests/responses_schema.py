"""What the Open Responses specification (openapi.json of 2026-04-24) demands of a response and of each stream event.

Written down field by field as JSON schemas, closed on purpose: a field that is not named here is a mistake of ours.
`EXTENSIONS` are the fields that the specification does not have and other readers want.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
ANY: Schema = {}

EXTENSIONS: dict[str, Schema] = {
    "status": {"enum": ["in_progress", "completed", "incomplete"]},
    "namespace": STRING,
    "user": {"type": ["string", "null"]},
    "cache_write_tokens": INTEGER,
    "name": STRING,
    "logprobs": {"type": "array"},
}


def null_or(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def closed(optional: tuple[str, ...] = (), **required: Schema) -> Schema:
    """An object with exactly these fields, and some of the extensions."""
    return {
        "type": "object",
        "required": list(required),
        "properties": {**{name: EXTENSIONS[name] for name in optional}, **required},
        "additionalProperties": False,
    }


def kind(value: str) -> Schema:
    return {"const": value}


STATUS: Schema = {"enum": ["in_progress", "completed", "incomplete"]}
OUTPUT_TEXT = closed(("logprobs",), type=kind("output_text"), text=STRING, annotations=array(ANY))
SUMMARY_TEXT = closed(type=kind("summary_text"), text=STRING)
MESSAGE = closed(
    type=kind("message"), id=STRING, status=STATUS, role={"const": "assistant"}, content=array(OUTPUT_TEXT)
)
FUNCTION_CALL = closed(
    ("namespace",),
    type=kind("function_call"),
    id=STRING,
    call_id=STRING,
    name=STRING,
    arguments=STRING,
    status=STATUS,
)
CUSTOM_CALL = closed(
    ("namespace", "status"), type=kind("custom_tool_call"), id=STRING, call_id=STRING, name=STRING, input=STRING
)
REASONING = closed(("status",), type=kind("reasoning"), id=STRING, summary=array(SUMMARY_TEXT))
ITEM: Schema = {"oneOf": [MESSAGE, FUNCTION_CALL, CUSTOM_CALL, REASONING]}

FUNCTION_TOOL = closed(
    type=kind("function"),
    name=STRING,
    description=null_or(STRING),
    parameters=null_or({"type": "object"}),
    strict=null_or(BOOLEAN),
)
VENDOR_TOOL: Schema = {"type": "object", "required": ["type"], "properties": {"type": {"not": kind("function")}}}
TOOL_CHOICE: Schema = {
    "oneOf": [
        {"enum": ["none", "auto", "required"]},
        {"type": "object", "required": ["type", "name"], "properties": {"type": kind("function"), "name": STRING}},
    ]
}
FORMAT: Schema = {
    "oneOf": [
        closed(type=kind("text")),
        closed(type=kind("json_object")),
        closed(
            type=kind("json_schema"),
            name=STRING,
            description=null_or(STRING),
            schema={"type": "object"},
            strict=BOOLEAN,
        ),
    ]
}
USAGE = closed(
    input_tokens=INTEGER,
    output_tokens=INTEGER,
    total_tokens=INTEGER,
    input_tokens_details=closed(("cache_write_tokens",), cached_tokens=INTEGER),
    output_tokens_details=closed(reasoning_tokens=INTEGER),
)
RESPONSE = closed(
    ("user",),
    id={"type": "string", "pattern": "^resp_"},
    object=kind("response"),
    created_at=INTEGER,
    completed_at=null_or(INTEGER),
    status={"enum": ["in_progress", "completed", "incomplete", "failed"]},
    incomplete_details=null_or(closed(reason={"const": "max_output_tokens"})),
    model=STRING,
    previous_response_id=null_or(STRING),
    instructions=null_or(STRING),
    output=array(ITEM),
    error=null_or(closed(code=STRING, message=STRING)),
    tools=array({"oneOf": [FUNCTION_TOOL, VENDOR_TOOL]}),
    tool_choice=TOOL_CHOICE,
    truncation={"enum": ["auto", "disabled"]},
    parallel_tool_calls=BOOLEAN,
    text=closed(format=FORMAT),
    top_p=NUMBER,
    presence_penalty=NUMBER,
    frequency_penalty=NUMBER,
    top_logprobs=INTEGER,
    temperature=NUMBER,
    reasoning=null_or(closed(effort=null_or(STRING), summary=null_or({"enum": ["concise", "detailed", "auto"]}))),
    usage=null_or(USAGE),
    max_output_tokens=null_or(INTEGER),
    max_tool_calls=null_or(INTEGER),
    store=BOOLEAN,
    background=BOOLEAN,
    service_tier=STRING,
    metadata={"type": "object"},
    safety_identifier=null_or(STRING),
    prompt_cache_key=null_or(STRING),
)

_TEXT: Schema = {"item_id": STRING, "output_index": INTEGER, "content_index": INTEGER}
_SUMMARY: Schema = {"item_id": STRING, "output_index": INTEGER, "summary_index": INTEGER}
_CALL: Schema = {"item_id": STRING, "output_index": INTEGER}


def event(name: str, optional: tuple[str, ...] = (), **fields: Schema) -> tuple[str, Schema]:
    return name, closed(optional, type=kind(name), sequence_number=INTEGER, **fields)


EVENTS: dict[str, Schema] = dict(
    [
        *(
            event(f"response.{state}", response=RESPONSE)
            for state in ("created", "in_progress", "completed", "incomplete", "failed")
        ),
        *(event(f"response.output_item.{step}", output_index=INTEGER, item=ITEM) for step in ("added", "done")),
        *(event(f"response.content_part.{step}", **_TEXT, part=OUTPUT_TEXT) for step in ("added", "done")),
        event("response.output_text.delta", ("logprobs",), **_TEXT, delta=STRING),
        event("response.output_text.done", ("logprobs",), **_TEXT, text=STRING),
        *(
            event(f"response.reasoning_summary_part.{step}", **_SUMMARY, part=SUMMARY_TEXT)
            for step in ("added", "done")
        ),
        event("response.reasoning_summary_text.delta", **_SUMMARY, delta=STRING),
        event("response.reasoning_summary_text.done", **_SUMMARY, text=STRING),
        event("response.function_call_arguments.delta", **_CALL, delta=STRING),
        event("response.function_call_arguments.done", ("name",), **_CALL, arguments=STRING),
        event("response.custom_tool_call_input.delta", **_CALL, delta=STRING),
        event("response.custom_tool_call_input.done", **_CALL, input=STRING),
    ]
)
