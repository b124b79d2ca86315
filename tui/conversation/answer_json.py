"""Answers as plain data: what is stored of one, and back. Provenance is run lengths; rounds are short arrays."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict
from typing import Any

from engine.types import Prefilled, Round, Sampling, Source, Usage
from tui.conversation.chat import Answer, Asked, Span, Status
from tui.conversation.stats import Tally
from tui.provenance import CODES, decode, encode


def dump_answer(answer: Answer) -> dict[str, Any]:
    """JSON-ready, but for `rounds`, which is packed bytes."""
    return {
        "text": answer.text,
        "prov": json.dumps(encode(answer.prov), separators=(",", ":")),
        "status": str(answer.status),
        "error": answer.error,
        "meta": json.dumps(_meta(answer), separators=(",", ":")),
        "rounds": pack([_round(r) for r in answer.rounds], _ends(answer)),
    }


def load_answer(row: Any) -> Answer:
    """From a stored row. An answer that was streaming when its program ended is marked as lost."""
    meta: dict[str, Any] = json.loads(row["meta"] or "{}")
    rounds, ends = unpack(row["rounds"])
    answer = Answer(text=row["text"], prov=bytearray(decode(json.loads(row["prov"] or "[]"))))
    answer.prov = (answer.prov + bytes(len(answer.text)))[: len(answer.text)]
    status = Status(row["status"])
    answer.status = status if status.over else Status.LOST
    answer.error = row["error"]
    answer.rounds = [_unround(r) for r in rounds]
    answer.spans = _spans(answer.rounds, ends)
    answer.tally = Tally()
    for round in answer.rounds:
        answer.tally.add(round)
    answer.thought_ranges = [(a, b) for a, b in meta.get("thoughts", [])]
    answer.reply_ranges = [(a, b) for a, b in meta.get("replies", [])]
    for name in ("drafter", "model", "seed", "first_ms", "started", "thought_s"):
        if name in meta:
            setattr(answer, name, meta[name])
    if "usage" in meta:
        answer.usage = Usage(**meta["usage"])
    if "asked" in meta:
        answer.asked = _load_asked(meta["asked"])
    if "prefilled" in meta:
        answer.prefilled = Prefilled("", **meta["prefilled"])
    return answer


def pack(rounds: list[Any], ends: list[int]) -> bytes:
    return zlib.compress(json.dumps([rounds, ends], separators=(",", ":")).encode(), 6)


def unpack(data: bytes | None) -> tuple[list[Any], list[int]]:
    if not data:
        return [], []
    rounds, ends = json.loads(zlib.decompress(data))
    return rounds, ends


def _meta(answer: Answer) -> dict[str, Any]:
    u, p = answer.usage, answer.prefilled
    meta: dict[str, Any] = {
        "drafter": answer.drafter,
        "model": answer.model,
        "seed": answer.seed,
        "first_ms": answer.first_ms,
        "started": answer.started,
        "usage": {name: getattr(u, name) for name in u.__slots__},
    }
    if answer.thought_ranges:
        meta |= {"thoughts": answer.thought_ranges, "replies": answer.reply_ranges, "thought_s": answer.thought_s}
    if answer.asked is not None:
        meta["asked"] = _dump_asked(answer.asked)
    if p is not None:
        meta["prefilled"] = {name: getattr(p, name) for name in p.__slots__ if name != "request"}
    return meta


def _round(r: Round) -> list[Any]:
    times = [round(x, 3) for x in (r.draft_ms, r.verify_ms, r.host_ms)]
    head = [r.index, r.start, list(r.tokens), list(r.drafted), r.accepted, str(r.source), r.drafter, r.cap]
    return [*head, *times, r.width, r.rows, r.depth, r.chain]


def _unround(a: list[Any]) -> Round:
    index, start, tokens, drafted, accepted, source, *rest = a
    kept, chain = rest[:8], rest[8] if len(rest) > 8 else ""  # older records have no chain
    return Round("", index, start, tuple(tokens), tuple(drafted), accepted, Source(source), *kept, chain=chain)


def _ends(answer: Answer) -> list[int]:
    return [span.end for span in answer.spans]


def _spans(rounds: list[Round], ends: list[int]) -> list[Span]:
    spans: list[Span] = []
    for r in rounds:
        for offset, (token, source) in enumerate(zip(r.tokens, r.sources, strict=True)):
            if len(spans) < len(ends):
                spans.append(Span(ends[len(spans)], CODES[source], token, r.start + offset, r.index))
    return spans


def _dump_asked(asked: Asked) -> dict[str, Any]:
    """JSON-ready; without the ids."""
    plain = asdict(Sampling())
    given = {name: value for name, value in asdict(asked.sampling).items() if value != plain[name]}
    return {"sampling": given, "checksum": asked.checksum, "pictures": asked.pictures}


def _load_asked(data: dict[str, Any]) -> Asked:
    given = dict(data["sampling"])
    if "logit_bias" in given:
        given["logit_bias"] = {int(token): value for token, value in given["logit_bias"].items()}
    return Asked(Sampling(**given), data["checksum"], data["pictures"])
