"""Where each character of an answer came from, one class per source character.

Knows nothing of screens. A class is a small integer, so that an answer's provenance is a `bytes` as long as its text;
runs of it are what is stored on disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from engine.types import Source

NONE = 0
"""Decoration that no token produced: bullets, borders, labels."""
TARGET = 1
DRAFT = 2
LOOKUP = 3
REJECTED = 4
"""A proposed token that the target turned down; only the trace view shows it."""

CODES: dict[Source, int] = {Source.TARGET: TARGET, Source.DRAFT: DRAFT, Source.LOOKUP: LOOKUP}
NAMES: dict[int, str] = {TARGET: "target", DRAFT: "draft", LOOKUP: "lookup", REJECTED: "rejected"}

_RUN = re.compile(rb"(.)\1*", re.DOTALL)


def runs(prov: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """(start, end, class) of each maximal run, in order."""
    for match in _RUN.finditer(prov):
        yield match.start(), match.end(), match[1][0]


def encode(prov: bytes | bytearray) -> list[tuple[int, int]]:
    """Run lengths (length, class), as stored."""
    return [(end - start, code) for start, end, code in runs(prov)]


def decode(lengths: Iterable[tuple[int, int]]) -> bytes:
    return b"".join(bytes([code]) * length for length, code in lengths)
