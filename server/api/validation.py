"""What all dialects ask of a field: that it is within its limits and of a known kind. Refusals name the field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from engine.config import Config
from engine.errors import UsageError
from engine.types import Sampling, parameters
from server.errors import bad
from server.types import Format, Tool, ToolChoice

_SETTINGS = {setting.name: setting for setting in parameters.declared(Config)}


def held(name: str, value: Any, param: str) -> Any:
    """A value within the limits that the setting has everywhere, or None; `param` is what the request calls it."""
    if value is not None:
        try:
            parameters.check(Config, _SETTINGS[name], value, param)
        except UsageError as error:
            raise bad(str(error), param) from error
    return value


def sampling_of(request: Any, api: str) -> dict[str, Any]:
    """The sampling that a request gave, by the names of `Sampling`."""
    given: dict[str, Any] = {}
    for setting in parameters.declared(Sampling):
        for name in reversed(parameters.about(setting).names_in(api)):
            value = held(setting.name, getattr(request, name), name)
            if value is not None:
                given[setting.name] = value
    return given


def positive(value: int | None, name: str) -> int | None:
    if value is not None and value < 1:
        raise bad(f"{name}: must be at least 1, got {value}.", name)
    return value


def stops(value: str | Sequence[str] | None, name: str) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else tuple(value or ())
    if len(found) > 16:
        raise bad(f"{name}: at most 16 stop texts.", name)
    return tuple(s for s in found if s)


def top_count(value: int | None, name: str) -> int | None:
    """How many alternatives to report beside each token."""
    if value is not None and not 0 <= value <= 20:
        raise bad(f"{name}: must be between 0 and 20, got {value}.", name)
    return value


def schema_format(schema: Any, param: str) -> Format:
    if not isinstance(schema, dict):
        raise bad(f"{param}: must be a JSON schema object.", param)
    return Format("schema", schema, param)


def text_format(kind: str, schema: Any, param: str, inner: str = "schema") -> Format | None:
    """`inner`: where under `param` the schema stands."""
    if kind == "text":
        return None
    if kind == "json_object":
        return Format("json", None, param)
    if kind == "json_schema":
        return schema_format(schema, f"{param}.{inner}")
    raise bad(f"{param}.type: '{kind}' is none of text, json_object, json_schema.", f"{param}.type")


def tool_choice(
    mode: Literal["auto", "none", "required"] | None,
    name: str | None,
    tools: Sequence[Tool],
    parallel: bool | None,
    param: str = "tool_choice",
) -> ToolChoice:
    """What the client wants called: one tool by name, or as the mode says. What no tool can answer is refused."""
    together = parallel is not False
    if name is not None:
        if name not in {t.name for t in tools}:
            raise bad(f"{param}: no tool named '{name}' in tools.", param)
        return ToolChoice("named", name, together)
    if mode == "required" and not tools:
        raise bad(f"{param}: a call is required and there are no tools.", param)
    return ToolChoice(mode or "auto", "", together)
