"""The losslessness certificate: every drafter at every draft length says what plain decoding says, on every prompt.

Greedy output is compared by ids; with a seed, sampling is coupled, so it can be compared the same way. A difference
counts as a tie only when the target itself holds both tokens for equal. Knows no screen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.calibration.controlled_run import Run
from engine.decoding.draft_length.policy import Full, Pinned
from engine.diagnostics.equivalence import Verdict, compare
from engine.drafters.chain import NONE
from engine.engine import Engine
from engine.errors import Cancelled
from engine.types import Request, Sampling

CAPS: tuple[int | None, ...] = (1, 2, 4, None)
"""Draft lengths that are tried; None is the drafter's longest."""


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt, drafter and draft length against plain decoding."""

    prompt: int
    drafter: str
    cap: int | None
    tokens: int
    drafted: int
    accepted: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Certificate:
    """All cases."""

    cases: tuple[Case, ...]
    model: str
    fingerprint: str
    drafters: tuple[str, ...]
    sampled: bool

    @property
    def ok(self) -> bool:
        return all(case.verdict.ok for case in self.cases)

    @property
    def failures(self) -> list[Case]:
        return [case for case in self.cases if not case.verdict.ok]

    @property
    def ties(self) -> list[Case]:
        return [case for case in self.cases if case.verdict.tie]

    @property
    def idle(self) -> list[str]:
        """Drafters of which no draft was ever accepted: for them the certificate proves little."""
        return [d for d in self.drafters if not any(c.accepted for c in self.cases if c.drafter == d)]

    def as_dict(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "model": self.model,
            "fingerprint": self.fingerprint,
            "drafters": list(self.drafters),
            "sampled": self.sampled,
            "cases": len(self.cases),
            "tokens": sum(c.tokens for c in self.cases),
            "accepted": sum(c.accepted for c in self.cases),
            "ties": len(self.ties),
            "idle": self.idle,
            "failures": [
                {"prompt": c.prompt, "drafter": c.drafter, "cap": c.cap, "verdict": str(c.verdict)}
                for c in self.failures
            ],
        }


def certify(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    drafters: Sequence[str],
    *,
    caps: Sequence[int | None] = CAPS,
    max_tokens: int = 48,
    sampling: Sampling | None = None,
    progress: Callable[[str, float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Certificate:
    """Check `drafters` (chains by name). `sampling` with a temperature needs a seed; by default decoding is greedy.

    Raises:
        UnknownDrafter: a name that is not loaded.
        Cancelled: `stop` said so.
    """
    law = sampling or Sampling()
    if not law.greedy and law.seed is None:
        raise ValueError("sampled texts can only be compared under a seed")
    chains = {name: engine.chain(name) for name in drafters}
    cases: list[Case] = []
    total = max(1, len(prompts) * len(drafters) * len(caps))

    def check(index: int, ids: Sequence[int]) -> None:
        request = Request(tuple(ids), max_tokens=max_tokens, sampling=law)
        plain = Run(engine.loop, engine.tokenizer, NONE, request, Pinned(0))
        plain.finish()
        for name, chain in chains.items():
            for cap in caps:
                if stop is not None and stop():
                    raise Cancelled("The check was stopped.")
                if progress is not None:
                    progress(f"{name}, {'full' if cap is None else cap}", len(cases) / total)
                run = Run(engine.loop, engine.tokenizer, chain, request, Full() if cap is None else Pinned(cap))
                rounds = run.finish()
                verdict = compare(engine.target, ids, plain.tokens, run.tokens, law)
                drafted, accepted = sum(len(r.drafted) for r in rounds), sum(r.accepted for r in rounds)
                cases.append(Case(index, name, cap, len(run.tokens), drafted, accepted, verdict))

    for index, ids in enumerate(prompts):
        engine.run_exclusive(lambda i=index, p=ids: check(i, p))
    return Certificate(tuple(cases), engine.spec.name, engine.spec.fingerprint, tuple(drafters), not law.greedy)
