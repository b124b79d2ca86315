"""The last word on a drafter: what the real decode loop accepts.

Runs on the model thread, beside or after training. Uses the loop, the prefill and the drafter that a chat would use.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.chat.tokenizer import Tokenizer
from engine.decoding.batch import Batch
from engine.decoding.draft_length.policy import Pinned
from engine.decoding.loop import Loop
from engine.decoding.prefill import Prefill, default_chunk
from engine.decoding.sequence import Sequence
from engine.decoding.stopping import Finish
from engine.drafters.base import Drafter
from engine.drafters.chain import NONE, Chain
from engine.drafters.load import load_drafter
from engine.sampling.sampler import RowSampler
from engine.targets.base import Target
from engine.types import Request, Round, Sampling


@dataclass(frozen=True, slots=True)
class Measured:
    """Decoding a set of prompts, the rounds after the first token counted."""

    prompts: int
    tokens: int
    rounds: int
    drafted: int
    accepted: int
    seconds: float
    by_length: tuple[int, ...] = ()
    """Rounds that accepted 0, 1, 2, ... drafts."""

    @property
    def committed(self) -> float:
        """Tokens a round."""
        return self.tokens / max(1, self.rounds)

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / max(1e-9, self.seconds)


def decode(
    target: Target, tokenizer: Tokenizer, prompts: Seq[Seq[int]], drafter: Drafter[Any] | None, *, max_tokens: int = 64
) -> Measured:
    """Greedy, one prompt after the other, always drafting as much as the drafter can. Call on the model thread."""
    chain = NONE if drafter is None else Chain(drafter.name, (drafter,))
    loop, rounds, seconds = Loop(target), list[Round](), 0.0
    for prompt in prompts:
        sequence = _sequence(target, tokenizer, prompt, chain, max_tokens)
        prefill = Prefill(target, sequence, None, default_chunk())
        prefill.start()
        while not prefill.done:
            prefill.step()
        loop.first(sequence, prefill.hidden)
        batch = Batch()
        if not sequence.finish.reason:
            batch.join(sequence, prefill.state)
        began = time.perf_counter()
        while not sequence.finish.reason:
            rounds += [event for event in loop.step(batch) if isinstance(event, Round)]
        batch.settle_ahead()
        seconds += time.perf_counter() - began
    longest = max((r.accepted for r in rounds), default=0)
    return Measured(
        len(prompts),
        sum(len(r.tokens) for r in rounds),
        len(rounds),
        sum(len(r.drafted) for r in rounds),
        sum(r.accepted for r in rounds),
        seconds,
        tuple(sum(r.accepted == n for r in rounds) for n in range(longest + 1)),
    )


def _sequence(target: Target, tokenizer: Tokenizer, prompt: Seq[int], chain: Chain, max_tokens: int) -> Sequence:
    spec = target.spec
    longest = chain.parts[0].max_draft if chain.parts else 0
    request = Request(list(prompt), max_tokens=max_tokens, id="measure", remember=False)
    return Sequence(
        request,
        sampler=RowSampler(Sampling(), request.prompt, spec.vocab_size),
        finish=Finish(
            tokenizer,
            stop_ids=spec.stop_ids,
            stop=(),
            max_tokens=max_tokens,
            room=spec.context - len(request.prompt),
        ),
        chain=chain,
        chains={chain.name: chain},
        policies=lambda _cap, _chain: Pinned(longest),
        listener=lambda _event: None,
    )


def measure(
    target: Target, tokenizer: Tokenizer, folder: Path, prompts: Seq[Seq[int]], max_tokens: int = 64
) -> tuple[Measured, Measured]:
    """(plain, with the drafter in `folder`). Call on the model thread."""
    drafter = load_drafter(folder, target)
    plain = decode(target, tokenizer, prompts, None, max_tokens=max_tokens)
    drafted = decode(target, tokenizer, prompts, drafter, max_tokens=max_tokens)
    mx.clear_cache()
    return plain, drafted
