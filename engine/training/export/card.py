"""The model card of a trained drafter: how it was made, and what was measured."""

from __future__ import annotations

from engine.errors import human_bytes
from engine.training.export.export import Origin
from engine.training.loop.accepted_length import Measured
from engine.training.loop.train import Plan
from engine.training.settings import Settings


def card(
    settings: Settings,
    origin: Origin,
    facts: dict[str, object],
    plan: Plan,
    measured: tuple[Measured, Measured],
    size: int,
) -> str:
    """Markdown."""
    plain, drafted = measured
    shape: dict[str, object] = facts["shape"]  # pyright: ignore[reportAssignmentType]
    kind = "DSpark" if shape["rank"] else "DFlash"
    hours = float(str(facts["used"])) / 3600
    lines = [
        f"# {kind} drafter for {origin.target}",
        "",
        "Made with `dspark-chat train` on one machine. It proposes tokens that the model itself verifies: it changes",
        "how fast an answer comes, never what it says.",
        "",
        "| | |",
        "|---|---|",
        f"| drafts a round | {int(str(shape['block'])) - int(str(shape['logits_start']))} |",
        f"| layers, taps | {shape['layers']}, after target layers {shape['taps']} |",
        f"| draft vocabulary | {shape['draft_vocab']} of {shape['vocab']} tokens |",
        f"| Markov rank | {shape['rank'] or 'none'} |",
        f"| weights | {human_bytes(size)} |",
        f"| trained on | {facts['anchors']} anchors, {facts['done']} steps, {hours:.2f} h |",
        f"| loss | {settings.ce} CE + {settings.l1} L1, target at temperature {settings.temperature} |",
        f"| step | {plan.sequences} sequences x {plan.anchors} anchors, peak rate {plan.rate} |",
        "",
        "Measured by the real decode loop on held-out prompts (greedy, fixed draft length):",
        "",
        "| | tokens a round | tokens/s here |",
        "|---|---|---|",
        f"| plain | {plain.committed:.2f} | {plain.speed:.1f} |",
        f"| with this drafter | {drafted.committed:.2f} | {drafted.speed:.1f} |",
        "",
        f"Rounds by accepted drafts (0, 1, 2, ...): {', '.join(map(str, drafted.by_length))}.",
    ]
    return "\n".join(lines) + "\n"
