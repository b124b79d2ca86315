"""What a person can decide: one frozen value, read from flags, then the environment, then the settings file.

Each setting is declared once, with its help and its limits; the command line, the settings file and the settings screen
are made from that. Imports nothing heavy, and knows no screen.
"""

from __future__ import annotations

import contextlib
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from engine import paths
from engine.drafters import registry
from engine.errors import UsageError, did_you_mean
from engine.types import Request, Sampling, parameters
from engine.types.parameters import EVERY_API, About, about, check, kinds, parameter

ENV_PREFIX = "DSPARK_"
MODEL = "the model"
"""In `Config.sources`: recommended by the checkpoint."""
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


HOLDS = {
    "model": "the next start",
    "sampling": "the next answer",
    "answer": "the next answer",
    "cache": "the next start",
}
"""The groups of settings in order, and from when on a change of one holds."""


def _setting(default: Any, *words: Any, **more: Any) -> Any:
    return parameter(default, About(*words, **more))


@dataclass(frozen=True, slots=True)
class Config(Sampling):
    """Everything that changes what the engine does. `sources` says where each value that is not a default came from.

    The sampling is inherited, limits and all; what holds for one request only is no setting.
    """

    model: str = _setting(
        *("", "card, owner/name, folder or .gguf file; the embedded model by default", "model", "NAME"),
        flags=("-m", "--model"),
    )
    drafter: str = _setting(
        *("auto", f"{', '.join(registry.names())}, owner/name or folder", "model", "NAME"),
        preset=True,
        apis={EVERY_API: ("drafter",)},
    )
    cap: int | Literal["auto", "derived", "full"] = _setting(
        *("auto", "longest draft: a number, 0 for plain decoding, auto, derived or full", "model", "N", 0, 64),
        apis={EVERY_API: ("draft_cap",)},
    )
    folders: tuple[str, ...] = _setting(
        (), "further folders with models (repeatable)", "model", "DIR", flags=("--models-folder",)
    )
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
    max_tokens: int = _setting(
        *(2048, "longest answer", "answer", "N", 1),
        also={-1: "for as much as fits"},
        aliases=("max",),
        preset=True,
        apis={
            EVERY_API: ("max_tokens",),
            "chat": ("max_completion_tokens", "max_tokens"),
            "responses": ("max_output_tokens",),
        },
    )
    stop: tuple[str, ...] = _setting(
        *((), "end before this text (repeatable)", "answer", "TEXT"),
        apis={"chat": ("stop",), "completions": ("stop",), "messages": ("stop_sequences",)},
    )
    system: str = _setting("", "system prompt", "answer", "TEXT", flags=("-s", "--system"), preset=True)
    thinking: bool | None = _setting(
        *(None, "let the model think first; by default as its template says", "answer"),
        preset=True,
        apis={"chat": ("enable_thinking",), "messages": ("thinking",)},
    )
    effort: Literal["minimal", "low", "medium", "high", "xhigh", "max"] | None = _setting(
        *(None, "how long to think, for models that know degrees of it", "answer", "WORD"),
        preset=True,
        apis={"chat": ("reasoning_effort",), "responses": ("reasoning.effort",), "messages": ("output_config.effort",)},
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
        return Sampling(**{f.name: getattr(self, f.name) for f in parameters.declared(Sampling)})

    def over(self, values: Mapping[str, Any], source: str) -> Config:
        """With these values in place of its own, decided by `source`."""
        return replace(self, **values, sources={**self.sources, **dict.fromkeys(values, source)})

    def under(self, generation: Mapping[str, Any]) -> Config:
        """With the model's own recommendation for the sampling that nobody has set.

        generation: a checkpoint's generation_config.json; one that does not sample recommends nothing.
        """
        values: dict[str, Any] = {}
        for setting in settings() if generation.get("do_sample") else ():
            given = generation.get(setting.name)
            if about(setting).recommended and setting.name not in self.sources and given is not None:
                with contextlib.suppress(UsageError):  # files of strangers
                    values[setting.name] = convert(setting, given)
        return self.over(values, MODEL)

    def request(self, prompt: Sequence[int], **more: Any) -> Request:
        """A request for these token ids under these settings."""
        own: dict[str, Any] = {"max_tokens": self.max_tokens, "sampling": self.sampling(), "stop": self.stop}
        return Request(tuple(prompt), **{**own, **more})

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
        return {setting.name: values[setting.name] for setting in settings()}


def settings() -> list[Field[Any]]:
    """The declared settings in order; `about(field)` describes each."""
    order = list(HOLDS)
    found = [f for f in parameters.declared(Config) if about(f).group]
    return sorted(found, key=lambda f: order.index(about(f).group))


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


def flags(setting: Field[Any]) -> tuple[str, ...]:
    """Its spellings on the command line, the long one last."""
    return about(setting).flags or ("--" + setting.name.replace("_", "-"),)


def flag(setting: Field[Any]) -> str:
    return flags(setting)[-1]


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
    return table, [f"{file.name}: there is no setting `{key}`.{did_you_mean(key, known)}" for key in unknown]


def convert(setting: Field[Any], value: Any, label: str = "") -> Any:
    """A value of the setting's own type, within its limits.

    Raises:
        UsageError: with one sentence that names the setting and what it takes.
    """
    label = label or f"`{setting.name}`"
    wanted, chosen = kinds(Config, setting.name), words(setting)
    if type(None) in wanted and value is None:
        return None
    if isinstance(value, str) and value in chosen:
        return value
    kind = next((k for k in wanted if k in (int, float, bool, str)), None if chosen else tuple)
    try:
        result = _as(kind, value)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise UsageError(f"{label} takes {takes(setting)}, not {value!r}.") from None
    check(Config, setting, result, label)
    return result


def words(setting: Field[Any]) -> tuple[str, ...]:
    """The words that a setting takes as they are, such as a cap's `auto`."""
    return parameters.words(Config, setting.name)


def takes(setting: Field[Any]) -> str:
    """What a setting takes, for a sentence: "a number between 0 and 5"."""
    return parameters.takes(Config, setting)


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
