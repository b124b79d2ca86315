"""The kinds of learned drafters, and the layouts that their files come in: one row each.

Knows names only. What stands behind a name is imported when it is asked for, so that settings, help texts, completion
and the catalog read this table at no cost.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

KINDS: dict[str, str] = {
    "dspark": "engine.drafters.dspark",
    "dflash": "engine.drafters.dflash",
}
"""Name, as people write it and cards do -> module with its `KIND`; what suits most people first."""

LAYOUTS: list[str] = [
    "engine.drafters.checkpoint.layouts.speculators",
    "engine.drafters.checkpoint.layouts.zlab2",
    "engine.drafters.checkpoint.layouts.muse",
    "engine.drafters.checkpoint.layouts.specforge",
    "engine.drafters.checkpoint.layouts.lfm2",
    "engine.drafters.checkpoint.layouts.deepspec",
    "engine.drafters.checkpoint.layouts.zlab",
]
"""Modules with a `PACKAGING`; the first that matches reads the file."""

PLAIN = ("none", "lookup")
"""Names of what needs no file: plain decoding, and copying from the context."""


def learned() -> tuple[str, ...]:
    """Names of the kinds that are made by training."""
    return tuple(KINDS)


def names() -> tuple[str, ...]:
    """What may be asked for by a word: everything but paths and repositories."""
    return ("auto", *PLAIN, *KINDS)


def example() -> str:
    """Some drafters to compare, as people list them."""
    return f"{','.join(PLAIN)},{learned()[0]}:4"


def kind(name: str) -> Any:
    """A row of `KINDS`; KeyError where there is none."""
    module: Any = import_module(KINDS[name])
    return module.KIND


def layouts() -> list[Any]:
    """The rows of `LAYOUTS`, in their order."""
    modules: list[Any] = [import_module(name) for name in LAYOUTS]
    return [module.PACKAGING for module in modules]
