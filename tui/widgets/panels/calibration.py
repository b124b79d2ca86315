"""What a verify of each width costs on this machine, and the draft length that follows from it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from tui.widgets.block_charts import columns
from tui.widgets.panels.base import Figures, Panel, dim, lines


def draw(figures: Figures, width: int) -> Content:
    view = figures.calibration
    curve: list[tuple[int, float]] = list(getattr(view, "curve", ()) or ())
    if view is None or not curve:
        return lines(dim("not measured on this machine"), dim("/calibrate takes about ten seconds"))
    shown = curve[: max(1, (width - 6) // 5)]
    rows = [
        Content("width" + "".join(f"{w:>5}" for w, _ in shown)),
        Content("ms   " + "".join(f"{ms:>5.0f}" for _, ms in shown)),
    ]
    knee, cap, rate = (getattr(view, name, None) for name in ("knee", "cap", "rate"))
    facts = [
        f"knee {knee}" if knee else "",
        f"k={cap}" if cap is not None else "",
        f"≈{rate:.0f} tok/s" if rate else "",
    ]
    if any(facts):
        rows.append(Content(" · ".join(f for f in facts if f)))
    date = str(getattr(view, "date", "") or "")
    if date:
        stale = bool(getattr(view, "stale", False))
        reason = str(getattr(view, "reason", "") or "")
        text = f"{date} · {reason}" if reason else date
        rows.append(Content.styled(text, "$warning" if stale else "$faint"))
    return lines(*rows)


def chart(figures: Figures, width: int, height: int) -> Content:
    """The curves: a verify by its width, and below it a draft by its length."""
    view = figures.calibration
    curve: list[tuple[int, float]] = list(getattr(view, "curve", ()) or ())
    if not curve:
        return dim("/calibrate measures this machine; it takes about ten seconds")
    draft: list[tuple[int, float]] = list(getattr(view, "draft", ()) or ())
    knee, cap = getattr(view, "knee", None), getattr(view, "cap", None)
    plain, speed = getattr(view, "plain", 0.0), getattr(view, "speedup", 0.0)
    facts = f"milliseconds of a verify by its width · knee {knee or 'none'}"
    if cap is not None:
        facts += f" · recommended draft length {cap}, which is width {cap + 1}"
    parts = [dim(facts), _bars(curve, width, height - 2 if not draft else (height - 3) * 2 // 3)]
    if draft:
        parts += [dim("milliseconds of a draft by its length"), _bars(draft, width, (height - 3) // 3)]
    if plain:
        parts.append(Content(f"plain {plain:.1f} tok/s, with drafts {getattr(view, 'rate', 0.0):.1f} ({speed:.2f}×), "
                             "predicted from these curves and the acceptance seen"))  # fmt: skip
    return lines(*parts)


def _bars(points: Sequence[tuple[int, float]], width: int, height: int) -> Content:
    return columns([ms for _, ms in points], width, max(3, height), names=[str(x) for x, _ in points])


PANEL = Panel("calibration", "Calibration", draw, chart=chart)
