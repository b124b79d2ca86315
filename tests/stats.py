"""Statistical helpers for tests: chi-square tests (the self-test's), and how many may fail together.

Draws are seeded (tests/conftest.py), so that no run differs from the last. What that is worth is bounded here: were all
of a module's tests drawn anew, one of them would fail by chance in one of a thousand times.
"""

from collections.abc import Sequence

from engine.diagnostics.self_test.chi_square import chi_square_p

FAMILY = 1e-3
"""Chance of any false alarm among all tests of a family."""


class Family:
    """The chi-square tests of one module, each at the level that bounds their error together (Bonferroni)."""

    def __init__(self, tests: int) -> None:
        """tests: more than there are; checked."""
        self._left = tests
        self.level = FAMILY / tests

    def follows(self, observed: Sequence[float], expected: Sequence[float]) -> bool:
        """Whether counts are as a law has them."""
        self._left -= 1
        assert self._left >= 0, "more tests than the family's error is shared among"
        return chi_square_p(observed, expected) > self.level
