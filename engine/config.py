"""What a person can decide: one frozen value, read from flags, then the environment, then the settings file.

Each setting is declared once, with its help and its limits; the command line, the settings file and the settings screen
are made from that. Imports nothing heavy, and knows no screen.
"""

from __future__ import annotations

import contextlib
import json
import os
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from engine import paths
from engine.errors import UsageError
from engine.types import Request, Sampling

ENV_PREFIX = "DSPARK_"
MODEL = "the model"
"""In `Config.sources`: recommended by the checkpoint."""
_TAKES: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false"}
OWN = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""What a checkpoint's generation_config.json may recommend."""
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class About:
    """What a front end needs to know of a setting beyond its name, type and default."""

    help: str
    group: str
    metavar: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    """The only values there are, where limits do not say it."""


def _setting(default: Any, *about: Any) -> Any:
    return field(default=default, metadata={"about": About(*about)})


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that changes what the engine does. `sources` says where each value that is not a default came from."""

    model: str = _setting("", "card, owner/name, folder or .gguf file; the embedded model by default", "model", "NAME")
    drafter: str = _setting("auto", "auto, none, lookup, dspark, dflash, owner/name or folder", "model", "NAME")
    cap: int | Literal["auto", "derived", "full"] = _setting(
        "auto", "longest draft: a number, 0 for plain decoding, auto, derived or full", "model", "N", 0, 64
    )
    folders: tuple[str, ...] = _setting((), "further folders with models (repeatable)", "model", "DIR")
    kv_bits: int = _setting(
        0, "keep keys and values in 8, 6 or 4 bits; 0 keeps them whole", "model", "BITS", 0, 8, (0, 4, 6, 8)
    )
    context: int | None = _setting(
        None, "longest conversation; by default what the model and the memory allow", "model", "TOKENS", 256
    )
    override: tuple[str, ...] = _setting(
        (), "replace an entry of the model's config: rope_theta=1e6 (repeatable)", "model", "KEY=VALUE"
    )
    drafter_window: int = _setting(
        4096, "positions that a drafter's full-attention layers look back; 0 for all", "model", "TOKENS", 0
    )
    pin_weights: bool = _setting(
        False, "keep macOS from paging the weights out between answers; takes that memory from everything else", "model"
    )
    trust_remote_code: bool = _setting(False, "let checkpoints run Python code of their own", "model")
    temperature: float = _setting(0.0, "0 is greedy", "sampling", "T", 0, 5)
    top_p: float = _setting(1.0, "keep the smallest set of tokens with this probability", "sampling", "P", 0, 1)
    top_k: int = _setting(0, "keep the k likeliest tokens; 0 keeps all", "sampling", "K", 0)
    min_p: float = _setting(0.0, "drop tokens below this part of the likeliest one", "sampling", "P", 0, 1)
    presence_penalty: float = _setting(0.0, "against tokens already generated", "sampling", "X", -2, 2)
    frequency_penalty: float = _setting(0.0, "against tokens by how often they were generated", "sampling", "X", -2, 2)
    repetition_penalty: float = _setting(1.0, "divides the logits of tokens already seen", "sampling", "X", 0.01, 10)
    seed: int | None = _setting(None, "the same text again, for every drafter and cap", "sampling", "N", 0)
    max_tokens: int = _setting(2048, "longest answer", "answer", "N", 1)
    stop: tuple[str, ...] = _setting((), "end before this text (repeatable)", "answer", "TEXT")
    system: str = _setting("", "system prompt", "answer", "TEXT")
    thinking: bool | None = _setting(None, "let the model think first; by default as its template says", "answer")
    effort: Literal["minimal", "low", "medium", "high", "xhigh", "max"] | None = _setting(
        None, "how long to think, for models that know degrees of it", "answer", "WORD"
    )
    prefix_cache: int | None = _setting(
        None, "memory of the prefix cache in MB; 0 turns it off, by default a share of the machine's", "cache", "MB", 0
    )
    prefix_disk: int = _setting(
        4096, "what it keeps on disk for the next start, in MB; 0 for nothing", "cache", "MB", 0
    )
    sources: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    """Sentences about entries of the settings file that were not understood."""

    def sampling(self) -> Sampling:
        names = {f.name for f in fields(Sampling)}
        return Sampling(**{f.name: getattr(self, f.name) for f in settings() if f.name in names})

    def under(self, generation: Mapping[str, Any]) -> Config:
        """With the model's own recommendation for the sampling that nobody has set.

        generation: a checkpoint's generation_config.json; one that does not sample recommends nothing.
        """
        values: dict[str, Any] = {}
        for setting in settings() if generation.get("do_sample") else ():
            given = generation.get(setting.name)
            if setting.name in OWN and setting.name not in self.sources and given is not None:
                with contextlib.suppress(UsageError):  # files of strangers
                    values[setting.name] = convert(setting, given)
        return replace(self, **values, sources={**self.sources, **dict.fromkeys(values, MODEL)})

    def request(self, prompt: Sequence[int], **more: Any) -> Request:
        """A request for these token ids under these settings."""
        return Request(tuple(prompt), max_tokens=self.max_tokens, sampling=self.sampling(), stop=self.stop, **more)

    def loading(self) -> dict[str, Any]:
        """What `engine.load.load` takes besides the model's and the drafter's name.

        Raises:
            UsageError: when an override is not KEY=VALUE.
        """
        overrides: dict[str, Any] = {}
        for entry in self.override:
            key, equals, value = entry.partition("=")
            if not equals or not key.strip():
                raise UsageError(f"--override takes KEY=VALUE, such as rope_theta=1000000, not {entry!r}.")
            try:
                overrides[key.strip()] = json.loads(value)
            except ValueError:
                overrides[key.strip()] = value
        return {
            "kv_bits": self.kv_bits,
            "context": self.context,
            "overrides": overrides,
            "drafter_window": self.drafter_window,
            "pin_weights": self.pin_weights,
        }

    def as_dict(self) -> dict[str, Any]:
        """Every setting by name; what `doctor` and a server's health page show."""
        values = asdict(self)
        del values["sources"], values["notes"]
        return values


def settings() -> list[Field[Any]]:
    """The declared settings in order; `about(field)` describes each."""
    return [f for f in fields(Config) if "about" in f.metadata]


def about(setting: Field[Any]) -> About:
    return setting.metadata["about"]


def read(
    flags: Mapping[str, Any] | None = None,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Merge flags over environment (`DSPARK_TOP_P`) over the settings file over the defaults.

    flags: only what was given. A wrong flag or environment value is an error; a wrong entry of the file becomes a note,
    so that a typing mistake there never keeps the program from starting.

    Raises:
        UsageError: with one sentence.
    """
    file = file or paths.settings_file()
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    table, notes = _table(file)
    for setting in settings():
        name, variable = setting.name, ENV_PREFIX + setting.name.upper()
        if name in table:
            try:
                values[name], sources[name] = convert(setting, table[name]), str(file)
            except UsageError as error:
                notes.append(f"{file.name}: {error}")
        if environ.get(variable):
            given: Any = environ[variable]
            # Several values in one variable, as in PATH.
            given = given.split(os.pathsep) if isinstance(setting.default, tuple) else given
            values[name], sources[name] = convert(setting, given, variable), variable
        if flags and name in flags:
            values[name], sources[name] = convert(setting, flags[name], flag(setting)), flag(setting)
    return Config(**values, sources=sources, notes=tuple(notes))


def flag(setting: Field[Any]) -> str:
    return "--" + setting.name.replace("_", "-")


def _table(file: Path) -> tuple[dict[str, Any], list[str]]:
    if not file.is_file():
        return {}, []
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return {}, [f"{file} is not read: {error}."]
    known = {setting.name for setting in settings()}
    # Tables belong to the front ends; plain entries are the engine's.
    unknown = [key for key, value in table.items() if key not in known and not isinstance(value, dict)]
    return table, [f"{file.name}: there is no setting `{key}`." for key in unknown]


def convert(setting: Field[Any], value: Any, label: str = "") -> Any:
    """A value of the setting's own type, within its limits.

    Raises:
        UsageError: with one sentence that names the setting and what it takes.
    """
    label = label or f"`{setting.name}`"
    kinds = _kinds(setting)
    if type(None) in kinds and value is None:
        return None
    chosen = words(setting)
    if isinstance(value, str) and value in chosen:
        return value
    kind = next((k for k in kinds if k in (int, float, bool, str)), None if chosen else tuple)
    try:
        result = _as(kind, value)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise UsageError(f"{label} takes {takes(setting)}, not {value!r}.") from None
    limits = about(setting)
    number = isinstance(result, int | float) and not isinstance(result, bool)
    if (number and not _within(limits, result)) or (limits.choices and result not in limits.choices):
        raise UsageError(f"{label} takes {takes(setting)}, not {value}.")
    return result


def words(setting: Field[Any]) -> tuple[str, ...]:
    """The words that a setting takes as they are, such as a cap's `auto`."""
    literals = [k for k in _kinds(setting) if typing.get_origin(k) is Literal]
    return tuple(word for literal in literals for word in typing.get_args(literal))


def takes(setting: Field[Any]) -> str:
    """What a setting takes, for a sentence: "a number between 0 and 5"."""
    limits, kinds = about(setting), _kinds(setting)
    kind = next((k for k in kinds if k in (int, float, bool, str)), None if words(setting) else tuple)
    if limits.choices:
        return ", ".join(str(choice) for choice in limits.choices)
    parts = [] if kind is None else [_TAKES.get(kind, "text") + _range(limits)]
    return ", ".join([*parts, *words(setting)])


def _kinds(setting: Field[Any]) -> tuple[Any, ...]:
    hint = typing.get_type_hints(Config)[setting.name]
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _as(kind: Any, value: Any) -> Any:
    if kind is None:
        raise TypeError
    if kind is tuple:
        return (value,) if isinstance(value, str) else tuple(str(v) for v in value)
    if kind is bool:
        return _WORDS[value.lower()] if isinstance(value, str) else bool(value)
    if kind is str and not isinstance(value, str):
        raise TypeError
    if kind is int and (isinstance(value, bool) or (isinstance(value, float) and not value.is_integer())):
        raise TypeError
    return kind(value)


def _range(limits: About) -> str:
    if limits.minimum is None:
        return ""
    if limits.maximum is None:
        return f" from {limits.minimum:g} up"
    return f" between {limits.minimum:g} and {limits.maximum:g}"


def _within(limits: About, value: float) -> bool:
    low, high = limits.minimum, limits.maximum
    return value == value and (low is None or value >= low) and (high is None or value <= high)
