"""The top row: model, drafter (with the reason when it is off), title, and how full the context is."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content
from textual.widgets import Static

from engine.chat.terminal_safe import one_line
from tui.conversation.session import ChatSession
from tui.conversation.stats import human

METER = 8


@dataclass(frozen=True, slots=True)
class HeaderState:
    """What the header shows."""

    model: str = ""
    drafter: str = ""
    source: str = "draft"
    """What the drafter's tokens count as, for its colour."""
    cap: str = ""
    trouble: str = ""
    """Why the drafter that was asked for is off."""
    title: str = ""
    used: int = 0
    context: int = 0


def state_of(session: ChatSession, model: str) -> HeaderState:
    """As the session is now. `model`: how to call what answers, or is about to."""
    engine, last = session.engine, session.last
    current = next((d for d in session.drafters if d.name == session.drafter), None)
    off = current is not None and not current.available
    return HeaderState(
        model=model,
        drafter=session.drafter if engine else "…",
        source=session.drafter_source,
        cap=f"k={last.cap}" if last.drafting and last.drafter == session.drafter else "",
        trouble=f"off: {current.reason or 'it cannot run'}" if current is not None and off else "",
        title=session.chat.name if session.chat.turns else "",
        used=session.used,
        context=engine.spec.context if engine else 0,
    )


def header(state: HeaderState, width: int) -> Content:
    """Left part cut, right part kept."""
    right = meter(state.used, state.context, width >= 60)
    room = max(0, width - right.cell_length - 2)
    drafter = state.drafter or "none"
    parts: list[tuple[str, str] | str] = [(short(state.model) or "no model", "bold")]
    parts.append(("  ·  drafter ", "") if width >= 60 else (" · ", ""))
    parts.append((one_line(drafter), f"$source-{state.source}" if drafter not in ("none", "…") else ""))
    if state.cap:
        parts.append(f" {state.cap}")
    if state.trouble:
        parts.append((f" ({one_line(state.trouble)})", "$warning"))
    elif state.title and width >= 80:
        parts.append(f"  ·  “{one_line(state.title)}”")
    left = Content.assemble(*parts).truncate(room, ellipsis=True)
    return Content.assemble(left, " " * max(1, width - left.cell_length - right.cell_length), right)


def short(model: str) -> str:
    """A path by its last part, a name as it is."""
    name = one_line(model)
    return name.rstrip("/").rsplit("/", 1)[-1] if name.startswith(("/", "~", ".")) else name


def meter(used: int, context: int, bar: bool) -> Content:
    """`ctx ▓▓░░░░░░ 1.8k/32k 6%`, amber from 75 %, red from 90 %."""
    if context <= 0:
        return Content("")
    share = min(used / context, 1.0)
    style = "$error" if share >= 0.9 else "$warning" if share >= 0.75 else ""
    full = round(share * METER) if share < 0.01 else max(1, round(share * METER))
    blocks = ("▓" * full + "░" * (METER - full) + " ") if bar else ""
    return Content.assemble("ctx ", (f"{blocks}{human(used)}/{human(context)} {share:.0%}", style))


class ChatHeader(Static):
    """Draws `HeaderState` again when it or the width changes."""

    DEFAULT_CSS = """
    ChatHeader { height: 1; padding: 0 1; background: $panel; color: $foreground; }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = HeaderState()

    def show(self, state: HeaderState) -> None:
        if state != self._state:
            self._state = state
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self.update(header(self._state, max(0, self.size.width)), layout=False)
