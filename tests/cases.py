"""How many cases a random test tries: a quarter of its number in `make test`, all of them in the CI, many times as many
and unseeded in `make fuzz`. And which of many alike cases are left to the slow run.

The profile is chosen on the command line (`--hypothesis-profile`, see the Makefile) and is `fast` otherwise. `fast` and
`ci` always try the same cases, wherever and however busily they run. Here is no case, only their number.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

FUZZ = float(os.environ.get("DSPARK_FUZZ", "20"))
"""How many times the number of the CI the profile `fuzz` tries."""
SHARE = {"fast": 0.25, "ci": 1.0, "fuzz": FUZZ}
FEWEST = 10

# No example and no test is judged by a clock: it would measure the machine's load.
_CLOCKLESS: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
_SEEDED: dict[str, Any] = {"derandomize": True, "database": None}


def scaled(count: int) -> int:
    """`count`, which is the number of the CI, under the profile of this run."""
    share = SHARE[settings.get_current_profile_name()]
    return max(min(count, FEWEST), round(count * share))


def examples(count: int = 100, **more: Any) -> settings:
    """Hypothesis' settings of a property that the CI tries with `count` examples."""
    return settings(max_examples=scaled(count), **more)


def seeds(count: int) -> list[int]:
    """Seeds of a test that makes its own cases (mark it `fuzz`, and name the seed in what it asserts)."""
    if settings.get_current_profile_name() != "fuzz":
        return list(range(scaled(count)))
    dice = random.SystemRandom()
    return [dice.randrange(2**32) for _ in range(scaled(count))]


def thinned(*axes: Iterable[Any], keep: int = 2) -> list[Any]:
    """Parameters of a table of cases: every `keep`-th stays in `make test`, the others are slow. Of several axes each
    value stays, and none always goes along with one of another axis."""
    rows = []
    for places in itertools.product(*(enumerate(axis) for axis in axes)):
        marks = [pytest.mark.slow] if sum(at for at, _ in places) % keep else []
        rows.append(pytest.param(*(value for _, value in places), marks=marks))
    return rows


def register() -> None:
    """Before any test module is imported: settings are taken from the profile of that moment."""
    settings.register_profile("fast", max_examples=25, **_SEEDED, **_CLOCKLESS)
    settings.register_profile("ci", max_examples=100, **_SEEDED, **_CLOCKLESS)
    settings.register_profile("fuzz", max_examples=round(100 * FUZZ), print_blob=True, **_CLOCKLESS)
    settings.load_profile("fast")
