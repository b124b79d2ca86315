"""What a verify of each width costs on this machine, and the draft length that follows from it."""

from __future__ import annotations

from textual.content import Content

from tui.panels import Figures, Panel, dim, lines


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


PANEL = Panel("calibration", "Calibration", draw)
