"""How a parameter is declared: once, on the field that holds it, with its help, its limits and where it applies.

The command line, the environment, the settings file and screen, presets, the HTTP APIs and the docs are made from these
declarations, and every value is held to the same limits wherever it comes from. Knows no particular parameter.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal

from engine.errors import UsageError

EVERY_API = "every API"
_TAKES: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class About:
    """What others need to know of a parameter beyond its name, type and default."""

    help: str
    group: str = ""
    """Heading under which a person decides it; empty: requests have it and there is no such setting."""
    metavar: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    """The only values there are, where limits do not say it."""
    also: Mapping[int, str] = field(default_factory=dict[int, str])
    """Values outside the limits, and what they mean."""
    flags: tuple[str, ...] = ()
    """Spellings on the command line, the long one last; by default made from the name."""
    aliases: tuple[str, ...] = ()
    """Names for people in a hurry."""
    preset: bool = False
    """Whether a preset holds it."""
    apis: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """HTTP APIs whose requests have it, and what it is called there, the first name first; see `EVERY_API`."""
    recommended: bool = False
    """Whether a checkpoint's generation_config.json may recommend it."""
    stage: Literal["", "logits", "law"] = ""
    """What of sampling it changes: the logits, by the tokens before; or the law made from them."""

    def admits(self, value: float) -> bool:
        low, high = self.minimum, self.maximum
        if self.choices:
            return value in self.choices
        inside = value == value and (low is None or value >= low) and (high is None or value <= high)
        return inside or value in self.also

    def names_in(self, api: str) -> tuple[str, ...]:
        """What requests of an HTTP API call it; empty where they do not have it."""
        return self.apis.get(api, self.apis.get(EVERY_API, ()))

    @property
    def whole_help(self) -> str:
        return "; ".join([self.help, *(f"{value} {meaning}" for value, meaning in self.also.items())])

    @property
    def range(self) -> str:
        if self.minimum is None:
            return ""
        if self.maximum is None:
            return f" from {self.minimum:g} up"
        return f" between {self.minimum:g} and {self.maximum:g}"


def parameter(default: Any, about: About) -> Any:
    """A field of a dataclass; a default that can be called makes the value."""
    first: dict[str, Any] = {"default_factory" if callable(default) else "default": default}
    return field(**first, metadata={"about": about})


def about(declared: Field[Any]) -> About:
    return declared.metadata["about"]


def declared(owner: Any) -> list[Field[Any]]:
    """The parameters of a class (or of a value of it), in order."""
    return [f for f in fields(owner) if "about" in f.metadata]


@cache
def _hints(owner: type) -> dict[str, Any]:
    return typing.get_type_hints(owner)


def kinds(owner: type, name: str) -> tuple[Any, ...]:
    """The types that a parameter may have."""
    hint = _hints(owner)[name]
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def words(owner: type, name: str) -> tuple[str, ...]:
    """The words that a parameter takes as they are, such as a cap's `auto`."""
    literals = [k for k in kinds(owner, name) if typing.get_origin(k) is Literal]
    return tuple(word for literal in literals for word in typing.get_args(literal))


def takes(owner: type, setting: Field[Any]) -> str:
    """What a parameter takes, for a sentence: "a number between 0 and 5"."""
    limits = about(setting)
    if limits.choices:
        return ", ".join(str(choice) for choice in limits.choices)
    plain = next((k for k in kinds(owner, setting.name) if k in (int, float, bool, str)), None)
    said = words(owner, setting.name)
    if _mapping(owner, setting.name):
        parts = [f"token ids and a number{limits.range} for each"]
    else:
        parts = [] if plain is None and said else [_TAKES.get(plain, "text") + limits.range]
    return ", ".join([*parts, *said])


def check(owner: type, setting: Field[Any], value: Any, label: str = "") -> None:
    """Hold a value of the parameter's type to its limits.

    Raises:
        UsageError: with one sentence that names the parameter, the value and what it takes.
    """
    if value is setting.default:
        return
    wanted = kinds(owner, setting.name)
    numbers = (value,)
    if _mapping(owner, setting.name):
        right = isinstance(value, Mapping) and all(isinstance(key, Integral) for key in value)
        numbers = tuple(value.values()) if right else ()
    elif int in wanted or float in wanted:
        right = (value is None and type(None) in wanted) or value in words(owner, setting.name)
        numbers = () if right else numbers
        right = right or _number(value, whole=float not in wanted)
    else:
        return
    if not right or not all(_number(n) and about(setting).admits(n) for n in numbers):
        label = label or setting.name
        shown = repr(value) if isinstance(value, str) else value
        raise UsageError(f"{label} takes {takes(owner, setting)}, not {shown}.")


def _number(value: Any, *, whole: bool = False) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral if whole else Real)


def _mapping(owner: type, name: str) -> bool:
    return typing.get_origin(kinds(owner, name)[0]) is Mapping


class Checked:
    """A dataclass whose parameters are within their limits, whoever made it."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for setting in declared(self):
            check(type(self), setting, getattr(self, setting.name))
