"""Watches for a learned drafter that is asked and never proposes: it costs time, changes no text, and so shows nowhere.

Called on the model thread. Knows drafters by name only, and no screen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("dspark.drafters")

PATIENCE = 32
"""Times in a row that a drafter may be asked and say nothing: a doubtful passage is over by then."""


class Silence:
    """Counts over all requests. `report(name, sentence)` is told when a drafter falls silent, and with an empty
    sentence when it speaks again."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        self._asked: dict[str, int] = {}

    def heard(self, name: str, drafts: int) -> None:
        """A drafter was asked, and proposed so many drafts."""
        before = self._asked.get(name, 0)
        self._asked[name] = 0 if drafts else before + 1
        if drafts and before >= PATIENCE:
            self._report(name, "")
        elif self._asked[name] == PATIENCE:
            sentence = (
                f"proposed nothing {PATIENCE} times in a row: it does not pay on this text, or its file is not read as "
                "it was made; `dspark-chat probe` tells"
            )
            log.warning("drafter %s: %s", name, sentence)
            self._report(name, sentence)
