"""Where a prompt stops being what it will be as history.

Templates write an opening for the answer (a role header, an empty or open reasoning block) and may write something
else there once the answer is known. A checkpoint behind that point is never hit again. Both ends are found by rendering
small conversations and comparing; pure over a `render` callable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.chat.reasoning import Style, opened

Render = Callable[[list[dict[str, Any]], bool], list[int]]
"""(messages, add_generation_prompt) -> ids."""
Decode = Callable[[Sequence[int]], str]

LONGEST = 64
"""A tail longer than this is no opening of a turn but a template that rewrites its past."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What one variant of a template does with the end of a prompt."""

    opening: tuple[int, ...] = ()
    """Ids that the template appends for the answer."""
    unstable: int = 1
    """How many of the prompt's last tokens change when the turn becomes history; at least one, so that an identical
    prompt has something left to read."""
    keeps_reply: bool = False
    """A generated answer stands in history as it was generated."""

    def ends(self, ids: Sequence[int]) -> bool:
        """Whether a prompt ends as this variant's prompts do."""
        n = len(self.opening)
        return n > 0 and tuple(ids[-n:]) == self.opening

    def tail(self, ids: Sequence[int]) -> int:
        """Unstable tokens at the end of this prompt."""
        return self.unstable if self.ends(ids) else 1


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def probe(render: Render, decode: Decode, style: Style, reasons: bool) -> Probe:
    """Render a turn as prompt and as history, with an answer that reasons and with one that does not.

    reasons: whether this variant's answers are expected to begin with reasoning.
    """
    ask = [{"role": "user", "content": "0"}]
    try:
        prompt = render(ask, True)
        bare = render(ask, False)
        histories = [render([*ask, answer, {"role": "user", "content": "1"}], True) for answer in _answers(style)]
    except Exception:  # noqa: BLE001  a template that cannot render this much gets the safe default
        return Probe()
    opening = prompt[common(prompt, bare) :]
    unstable = max(len(prompt) - common(prompt, history) for history in histories)
    if not 0 < len(opening) <= LONGEST or unstable > LONGEST:
        return Probe()
    text, past = decode(prompt), [decode(h) for h in histories]
    if not reasons:
        keeps = past[0].startswith(f"{text}yes")
    elif opened(text[-256:], style):
        keeps = past[1].startswith(f"{text}hm{style.closer}")
    else:
        keeps = past[1].startswith(f"{text}{style.opener}hm{style.closer}")
    return Probe(tuple(opening), max(1, unstable), keeps)


def _answers(style: Style) -> list[dict[str, Any]]:
    plain = {"role": "assistant", "content": "yes"}
    return [plain, {**plain, "reasoning_content": "hm", "content": f"{style.opener}hm{style.closer}\n\nyes"}]
