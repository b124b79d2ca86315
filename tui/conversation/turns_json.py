"""Turns as the JSON export writes them, and back. What does not fit costs the detail, not the turn. Knows no files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from engine.chat.terminal_safe import clean, one_line
from engine.types import Round, Source
from tui.conversation.chat import Answer, Chat, Span, Status, Turn
from tui.conversation.stats import Tally
from tui.provenance import CODES, NAMES, encode

_CODES = {name: code for code, name in NAMES.items()} | {"none": 0}


def document(chat: Chat) -> str:
    """Everything that is known of a chat, with provenance as runs of [length, source]."""
    data = {"id": chat.id, "title": chat.name, "system": chat.system, "created": chat.created}
    turns = [_dump(turn) for turn in chat.turns]
    return json.dumps(data | {"turns": turns}, ensure_ascii=False, indent=1) + "\n"


def turns(data: list[Any]) -> list[Turn]:
    """What can be read of them."""
    return [turn for entry in data if isinstance(entry, dict) and (turn := _load(entry)) is not None]


def number(value: Any) -> float:
    """A finite number.

    Raises:
        TypeError, ValueError: when it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(value)
    return float(value)


def _dump(turn: Turn) -> dict[str, Any]:
    a = turn.answer
    return {
        "user": turn.user,
        "images": list(turn.images),
        "text": a.text,
        "provenance": [[length, NAMES.get(code, "none")] for length, code in encode(a.prov)],
        "reply": a.reply_ranges,
        "reasoning": a.thought_ranges,
        "reasoning_s": round(a.thought_s, 3),
        "status": str(a.status),
        "error": a.error,
        "model": a.model,
        "drafter": a.drafter,
        "seed": a.seed,
        "first_ms": a.first_ms,
        "tokens": a.tally.tokens,
        "sources": {str(k): v for k, v in a.tally.by_source.items()},
        "acceptance": a.tally.acceptance,
        "tokens_per_second": a.tally.rate,
        "ends": [span.end for span in a.spans],
        "rounds": [
            {
                "index": r.index,
                "start": r.start,
                "tokens": list(r.tokens),
                "drafted": list(r.drafted),
                "accepted": r.accepted,
                "source": str(r.source),
                "drafter": r.drafter,
                "chain": r.chain,
                "cap": r.cap,
                "ms": [round(r.draft_ms, 3), round(r.verify_ms, 3), round(r.host_ms, 3)],
                "width": r.width,
                "rows": r.rows,
                "depth": r.depth,
            }
            for r in a.rounds
        ],
    }


def _load(data: dict[str, Any]) -> Turn | None:
    user, text = data.get("user"), data.get("text")
    if not isinstance(user, str) or not isinstance(text, str):
        return None
    answer = Answer(text=clean(text), status=Status.DONE if text else Status.STOPPED)
    same = answer.text == text  # offsets hold only in the text that they were made for
    answer.prov = _prov(data.get("provenance"), len(text)) if same else bytearray(len(answer.text))
    status = data.get("status")
    if isinstance(status, str) and status in [str(s) for s in Status if s.over]:
        answer.status = Status(status)
    for name in ("model", "drafter", "error"):
        value = data.get(name)
        setattr(answer, name, one_line(value)[:2000] if isinstance(value, str) else "")
    seed, first = data.get("seed"), data.get("first_ms")
    answer.seed = seed if isinstance(seed, int) and not isinstance(seed, bool) and abs(seed) < 2**63 else None
    try:
        answer.first_ms = None if first is None else number(first)
        answer.thought_s = number(data.get("reasoning_s", 0))
        answer.thought_ranges = _ranges(data.get("reasoning", []), len(text)) if same else []
        answer.reply_ranges = _ranges(data.get("reply", []), len(text)) if same else []
        answer.rounds = [_round(entry) for entry in data.get("rounds", [])] if same else []
        answer.spans = _spans(answer.rounds, data.get("ends", []), len(text))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        answer.rounds, answer.spans, answer.thought_ranges, answer.reply_ranges = [], [], [], []
    answer.tally = Tally()
    for round in answer.rounds:
        answer.tally.add(round)
    images = data.get("images")
    names = tuple(one_line(name) for name in images if isinstance(name, str)) if isinstance(images, list) else ()
    return Turn(clean(user), answer, names)


def _prov(runs: Any, length: int) -> bytearray:
    """Runs that do not cover the text exactly tell nothing."""
    out = bytearray()
    for run in runs if isinstance(runs, list) else []:
        try:
            count, name = run
            if not 0 < int(count) <= length - len(out):
                return bytearray(length)
            out += bytes((_CODES.get(name, 0),)) * int(count)
        except (TypeError, ValueError):
            return bytearray(length)
    return out if len(out) == length else bytearray(length)


def _ranges(data: Any, length: int) -> list[tuple[int, int]]:
    ranges = [(int(a), int(b)) for a, b in data]
    flat = [0, *(x for pair in ranges for x in pair), length]
    if flat != sorted(flat):
        raise ValueError(data)
    return ranges


def _round(data: dict[str, Any]) -> Round:
    tokens, drafted = _ids(data["tokens"]), _ids(data["drafted"])
    accepted = int(data["accepted"])
    if not tokens or not 0 <= accepted <= min(len(tokens), len(drafted)):
        raise ValueError(accepted)
    whole = [int(data.get(name, 1 if name == "rows" else 0)) for name in ("index", "start", "cap", "rows", "depth")]
    index, start, cap, rows, depth = whole
    draft, verify, host = (max(0.0, number(ms)) for ms in data.get("ms", (0, 0, 0)))
    drafter, chain = (one_line(str(data.get(name, "")))[:80] for name in ("drafter", "chain"))
    width = int(data.get("width", 1 + len(drafted)))
    head = Round("", index, start, tokens, drafted, accepted, Source(data["source"]), drafter, cap, draft, verify, host)
    return replace(head, width=width, rows=rows, depth=depth, chain=chain)


def _ids(data: Any) -> tuple[int, ...]:
    ids = tuple(int(i) for i in data)
    if not all(0 <= i < 2**31 for i in ids):
        raise ValueError(data)
    return ids


def _spans(rounds: list[Round], ends: Any, length: int) -> list[Span]:
    at = [int(end) for end in ends]
    if [0, *at, length] != sorted([0, *at, length]):
        raise ValueError(ends)
    spans: list[Span] = []
    for r in rounds:
        for offset, (token, source) in enumerate(zip(r.tokens, r.sources, strict=True)):
            if len(spans) < len(at):
                spans.append(Span(at[len(spans)], CODES[source], token, r.start + offset, r.index))
    return spans
