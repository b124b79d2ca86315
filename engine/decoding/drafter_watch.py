"""Watches learned drafters for what changes no text and so shows nowhere: one that is asked and never proposes, and one
whose numbers are no law.

Called on the model thread. Knows drafters by name only, and no screen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("dspark.drafters")

PATIENCE = 32
"""Times in a row that a drafter may be asked and say nothing: a doubtful passage is over by then."""
SILENT = (
    f"proposed nothing {PATIENCE} times in a row: it does not pay on this text, or its file is not read as "
    "it was made; `dspark-chat probe` tells"
)
FAULTY = (
    "its numbers were no probabilities (NaN, infinite or negative), so that it drafts no more where that was seen: its "
    "file is damaged, or not read as it was made; fetch it again, or use another one"
)


class DrafterWatch:
    """Counts over all requests. `report(name, kind, sentence)` is told when a drafter falls silent, and with an empty
    sentence when it speaks again; and of a faulty one."""

    def __init__(self, report: Callable[[str, str, str], None]) -> None:
        self._report = report
        self._asked: dict[str, int] = {}
        self._faulty: set[str] = set()

    def heard(self, name: str, drafts: int) -> None:
        """A drafter was asked, and proposed so many drafts."""
        before = self._asked.get(name, 0)
        self._asked[name] = 0 if drafts else before + 1
        if drafts and before >= PATIENCE:
            self._report(name, "silence", "")
        elif self._asked[name] == PATIENCE:
            self._say(name, "silence", SILENT)

    def faulty(self, name: str) -> None:
        """A drafter handed over numbers that are no law. That is not taken back: it would do so again."""
        if name not in self._faulty:
            self._faulty.add(name)
            self._say(name, "fault", FAULTY)

    def _say(self, name: str, kind: str, sentence: str) -> None:
        log.warning("drafter %s: %s", name, sentence)
        self._report(name, kind, sentence)
