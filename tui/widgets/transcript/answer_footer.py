"""The rows around an answer: reasoning above; legend, figures, and what went wrong below. Pure."""

from __future__ import annotations

from engine.types import Source
from tui.conversation.chat import Answer, Status
from tui.markdown.lines import BLANK, Flow, Line
from tui.provenance import CODES
from tui.widgets.transcript.reproduction_line import certificate

GLYPHS = {Source.DRAFT: "■", Source.LOOKUP: "▤", Source.TARGET: "□"}
"""A shape a source, for those who see no colour."""
_ENDS = {
    Status.STOPPED: "stopped",
    Status.LENGTH: "cut at the length limit",
    Status.LOST: "the program ended before this answer did",
}


def footer_lines(answer: Answer, width: int) -> list[Line]:
    """While the prompt is read, how far; nothing while the answer streams; figures when it is over."""
    if not answer.status.over:
        done, total = answer.read
        reading = f"reading the prompt {done}/{total}" if total else "reading the prompt"
        return [] if answer.text else _wrapped(f"{reading} …", "meta", width)
    lines: list[Line] = []
    if answer.error:
        lines += _wrapped(f"⚠ {answer.error}", "fault", width)
    if answer.tally.tokens:
        lines += legend(answer).wrapped(width)
        lines += _wrapped(" · ".join(figures(answer)), "meta", width)
    elif answer.status is Status.STOPPED:
        lines += _wrapped("stopped before the first word", "meta", width)
    elif not answer.error and not answer.text:
        lines += _wrapped("the model ended its turn without a word", "meta", width)
    return [BLANK, *lines] if lines and answer.text else lines


def thought_lines(answer: Answer, width: int, unfolded: bool) -> list[Line]:
    """Nothing when the model did not reason."""
    if not answer.thought_ranges:
        return []
    end = answer.thought_ranges[-1][1]
    tokens = sum(1 for span in answer.spans if span.end <= end)
    going = not answer.reply_ranges and not answer.status.over
    verb = "thinking" if going else "thought"
    head = f"{'▾' if unfolded else '▸'} {verb} {answer.thought_s:.1f} s · {tokens} tok  (Ctrl+T or click)"
    lines = _wrapped(head, "meta", width)
    if unfolded:
        flow = Flow()
        for text, code in answer.pieces(reasoning=True):
            flow.add(text, "em", bytes((code,)) * len(text))
        lines += flow.wrapped(width)
    return [*lines, BLANK]


def legend(answer: Answer) -> Flow:
    """Percentages that sum to 100, each in its source's colour."""
    flow = Flow()
    for source, percent in answer.tally.legend.items():
        text = f"{GLYPHS[source]} {source} {percent}%"
        flow.add(text, "meta", bytes((CODES[source],)) * len(text))
        flow.add("  ", "meta")
    per_round = answer.tally.per_round
    if per_round is not None:
        flow.add(f"{per_round:.1f} tok/round", "meta")
    return flow


def figures(answer: Answer) -> list[str]:
    """The turn in numbers."""
    tally, out = answer.tally, []
    if answer.status in _ENDS:
        out.append(_ENDS[answer.status])
    if tally.rate is not None:
        out.append(f"{tally.rate:.1f} tok/s")
    if answer.first_ms is not None:
        out.append(f"first {answer.first_ms / 1000:.2f} s")
    out.append(f"{tally.tokens} tok")
    out += certificate(answer)
    return out


def _wrapped(text: str, style: str, width: int) -> list[Line]:
    flow = Flow()
    flow.add(text, style)
    return flow.wrapped(width)
