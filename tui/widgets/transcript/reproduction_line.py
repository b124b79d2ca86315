"""The line that says how an answer came about, so that it can be had again: sampling and seed, drafter, draft length,
acceptance, prefix cache. From what is stored with the answer, hence the same for one that was just given and for one of
last year. Pure.
"""

from __future__ import annotations

from typing import Any

from engine.chat.terminal_safe import one_line
from tui.conversation.chat import Answer
from tui.conversation.stats import human


def certificate(answer: Answer) -> list[str]:
    """Its parts, in order; what is not known is left out."""
    parts: list[str] = []
    if answer.prefilled is not None:
        parts.append(f"cache {human(answer.prefilled.cached)}/{human(answer.prefilled.tokens)}")
    if answer.drafter:
        parts.append(f"drafter {drafters(answer)}{caps(answer)}")
    tally = answer.tally
    if tally.acceptance is not None:
        parts.append(f"accepted {tally.accepted}/{tally.drafted} ({tally.acceptance:.2f})")
    if law := sampling(answer):
        parts.append(law)
    if answer.seed is not None:
        parts.append(f"seed {answer.seed}")
    return parts


def drafters(answer: Answer) -> str:
    """All that were in charge, in order: a switch in mid-answer shows."""
    names = dict.fromkeys(round.chain or round.drafter for round in answer.rounds if round.index > 0)
    return " → ".join(one_line(name) for name in names) or one_line(answer.drafter)


def caps(answer: Answer) -> str:
    """Draft lengths allowed: ` k=4`, or ` k=2–7` where the policy changed its mind; empty for plain answers."""
    allowed = [round.cap for round in answer.rounds if round.index > 0 and round.drafted]
    if not allowed:
        return ""
    low, high = min(allowed), max(allowed)
    return f" k={low}" if low == high else f" k={low}–{high}"


def sampling(answer: Answer) -> str:
    """`greedy`, or the temperature; empty for answers from before this was kept."""
    law: Any = getattr(getattr(answer, "asked", None), "sampling", None)
    if law is None:
        return ""
    return "greedy" if law.greedy else f"T={law.temperature:g}"
