"""What a scheduler decodes with: target, loop, prefix cache and limits. Knows no thread and no request."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.decoding.admission import Admission
from engine.decoding.chunk_budget import Pace
from engine.decoding.loop import Loop
from engine.decoding.prefill import default_chunk
from engine.prefix_cache.cache import PrefixCache
from engine.targets.base import Target


@dataclass(slots=True)
class Plan:
    """What decoding needs to know."""

    target: Target
    loop: Loop
    cache: PrefixCache | None = None
    max_batch: int = 1
    chunk: int = field(default_factory=default_chunk)
    pace: Pace = field(default_factory=Pace)
    admission: Admission | None = None
    """None admits by number alone."""
