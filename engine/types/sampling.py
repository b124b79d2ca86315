"""What decides how logits become a token: the one declaration of each sampling parameter.

Knows what parameters there are and their limits; how they are applied is in `engine.sampling`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.types.parameters import EVERY_API, About, Checked, about, declared, parameter


def _sampled(default: Any, name: str, help: str, metavar: str, *limits: float, **more: Any) -> Any:
    given: dict[str, Any] = {
        "apis": {EVERY_API: (name,)},
        **dict(zip(("minimum", "maximum"), limits, strict=False)),
        **more,
    }
    return parameter(default, About(help, "sampling", metavar, preset=True, **given))


_LAW: dict[str, Any] = {"stage": "law", "recommended": True}


@dataclass(frozen=True, slots=True)
class Sampling(Checked):
    """How the target's logits become a distribution. The defaults are greedy decoding.

    Order: penalties and bias on logits, temperature, top-k (ties kept), renormalise, top-p, min-p; all in float32.
    The declarations hold all there is to know of a parameter: the settings, the fields of the HTTP APIs and what a
    checkpoint may recommend follow from them.
    """

    temperature: float = _sampled(0.0, "temperature", "0 is greedy", "T", 0, 5, aliases=("temp",), **_LAW)
    """0 is greedy (argmax); otherwise logits are divided by it."""
    top_p: float = _sampled(1.0, "top_p", "keep the smallest set of tokens with this probability", "P", 0, 1, **_LAW)
    top_k: int = _sampled(0, "top_k", "keep the k likeliest tokens; 0 keeps all", "K", 0, also={-1: "too"}, **_LAW)
    min_p: float = _sampled(0.0, "min_p", "drop tokens below this part of the likeliest one", "P", 0, 1, **_LAW)
    presence_penalty: float = _sampled(
        0.0, "presence_penalty", "against tokens already generated", "X", -2, 2, stage="logits"
    )
    """Subtracted once from each token that was generated (OpenAI scope: generated tokens only)."""
    frequency_penalty: float = _sampled(
        0.0, "frequency_penalty", "against tokens by how often they were generated", "X", -2, 2, stage="logits"
    )
    """Subtracted once per occurrence among generated tokens."""
    repetition_penalty: float = _sampled(
        *(1.0, "repetition_penalty", "divides the logits of tokens already seen", "X", 0.01, 10),
        apis={EVERY_API: ("repetition_penalty", "repeat_penalty")},
        stage="logits",
        recommended=True,
    )
    """Divides positive and multiplies negative logits of tokens in prompt or output (CTRL, arXiv 1909.05858)."""
    seed: int | None = _sampled(
        None, "seed", "the same text again, for every drafter and cap", "N", 0, also={-1: "for none"}
    )
    """With a seed, sampling is coupled: the same text for every drafter, draft length and batch."""
    logit_bias: Mapping[int, float] = parameter(
        dict[int, float],
        About(
            "added to the logits of these tokens",
            minimum=-100,
            maximum=100,
            apis={"chat": ("logit_bias",), "completions": ("logit_bias",)},
            stage="logits",
        ),
    )

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.seed == -1:  # as other programs say that there is none
            object.__setattr__(self, "seed", None)

    @property
    def greedy(self) -> bool:
        return self.temperature <= 0.0

    def at(self, stage: str) -> tuple[Any, ...]:
        """The values that change this stage of sampling; two requests with the same ones share it."""
        return tuple(getattr(self, f.name) for f in declared(Sampling) if about(f).stage == stage)

    def changes(self, stage: str) -> bool:
        """Whether anything of a stage differs from plain decoding."""
        return self.at(stage) != Sampling().at(stage)
