"""The drafters of a conversation side by side: what each did, and against plain decoding as it was measured. Pure.

Everything is added up from the same round records as panels and legends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.chat.terminal_safe import one_line
from tui.conversation.chat import Answer
from tui.conversation.stats import Tally

HEAD = ("drafter", "turns", "tokens", "tok/round", "accepted", "tok/s", "to plain")


@dataclass(slots=True)
class Standing:
    """One drafter, or one chain, in this conversation."""

    name: str
    turns: int = 0
    """Answers in which it was in charge of at least one round."""
    tally: Tally = field(default_factory=Tally)


def standings(answers: Sequence[Answer]) -> list[Standing]:
    """In the order of their first appearance."""
    found: dict[str, Standing] = {}
    for answer in answers:
        seen: set[str] = set()
        for round in answer.rounds:
            name = round.chain or round.drafter
            standing = found.setdefault(name, Standing(name))
            standing.tally.add(round)
            if name not in seen:
                seen.add(name)
                standing.turns += 1
    return list(found.values())


def plain_of(answers: Sequence[Answer], calibrated: float = 0.0) -> tuple[float | None, str]:
    """(tokens a second of plain decoding, how that is known); None when nothing was measured."""
    whole = Tally()
    for answer in answers:
        for round in answer.rounds:
            whole.add(round)
    if whole.plain_rate is not None:
        return whole.plain_rate, f"plain {whole.plain_rate:.1f} tok/s, from {len(whole.plain_ms)} plain rounds here"
    if calibrated > 0:
        return calibrated, f"plain {calibrated:.1f} tok/s, as this machine was calibrated"
    return None, "plain decoding was not measured: /calibrate does, or some turns with the drafter none"


def rows(answers: Sequence[Answer], calibrated: float = 0.0) -> list[tuple[str, ...]]:
    """The table's body, as text."""
    plain, _ = plain_of(answers, calibrated)
    out: list[tuple[str, ...]] = []
    for each in standings(answers):
        t = each.tally
        ratio = f"{t.rate / plain:.2f}×" if t.rate is not None and plain else "–"
        per_round = f"{t.per_round:.2f}" if t.per_round is not None else "–"
        accepted = f"{t.acceptance:.2f}" if t.acceptance is not None else "–"
        rate = f"{t.rate:.1f}" if t.rate is not None else "–"
        out.append((one_line(each.name), str(each.turns), str(t.tokens), per_round, accepted, rate, ratio))
    return out


def table(answers: Sequence[Answer], calibrated: float = 0.0) -> str:
    """Aligned columns and where the plain rate comes from; a sentence when there is nothing to compare."""
    body = rows(answers, calibrated)
    if not body:
        return "There is no answer yet to compare drafters by."
    widths = [max(len(row[i]) for row in (HEAD, *body)) for i in range(len(HEAD))]
    lines = [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in (HEAD, *body)
    ]
    return "\n".join([*lines, plain_of(answers, calibrated)[1]])
