"""Toy parts that tests share: no weights, no downloads.

`table_target` has a scripted law (the next token depends on the last one only), `tiny_llama` is a real mlx-lm model
with random weights, and the scripted drafter proposes what a test tells it to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from engine.kv_cache.base import State
from engine.targets.base import Body, TargetSpec
from engine.types import DenseQ, Proposal, Source


class ByteTokenizer:
    """256 bytes and three control tokens; implements what engine.chat.tokenizer.Tokenizer offers."""

    vocab_size = 259

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        out, run = "", bytearray()
        for i in ids:
            if i < 256:
                run.append(i)
            else:
                out += run.decode(errors="replace") + f"<{i}>"
                run.clear()
        return out + run.decode(errors="replace")

    def stream(self) -> Any:
        from engine.chat.tokenizer import Detokenizer

        return Detokenizer(self)  # pyright: ignore[reportArgumentType]

    def token(self, text: str) -> int | None:
        return None


def spec(
    vocab: int, hidden: int = 4, layers: int = 1, context: int = 4096, stop_ids: frozenset[int] = frozenset()
) -> TargetSpec:
    return TargetSpec(
        model_type="toy",
        name="toy",
        path="",
        hidden_size=hidden,
        num_layers=layers,
        vocab_size=vocab,
        stop_ids=stop_ids,
        context=context,
        weight_bytes=0,
        kv_bytes_per_token=0,
        fingerprint="toy",
    )


class TableTarget:
    """p(next | last) is row `last` of a table of logits [V, V]; the state only counts."""

    def __init__(self, table: mx.array, stop_ids: frozenset[int] = frozenset(), context: int = 4096) -> None:
        self.table = table
        vocab = table.shape[0]
        self.spec = spec(vocab, hidden=vocab, stop_ids=stop_ids, context=context)
        self.fed = 0
        """Tokens that went through the body."""

    def new_state(self) -> State:
        return State([])

    def body(self, ids: mx.array, state: State, taps: Sequence[int] = (), embeddings: mx.array | None = None) -> Body:
        assert state.transaction is not None
        self.fed += int(ids.shape[0] * ids.shape[1])
        hidden = self.table[ids]
        return Body(hidden, mx.concatenate([hidden] * len(taps), axis=-1) if taps else None)

    def logits(self, hidden: mx.array) -> mx.array:
        return hidden

    def raw_logits(self, hidden: mx.array) -> mx.array:
        return hidden

    def raw_embed(self, ids: mx.array) -> mx.array:
        return self.table[ids]


def counting_target(vocab: int, script: Callable[[int], int] | None = None, **kwargs: Any) -> TableTarget:
    """A target whose greedy next token is script(last), by default last + 1 modulo the vocabulary."""
    step = script or (lambda last: (last + 1) % vocab)
    table = [[8.0 if j == step(i) else 0.0 for j in range(vocab)] for i in range(vocab)]
    return TableTarget(mx.array(table), **kwargs)


def tiny_llama(*, window: int | None = None, layers: int = 2, vocab: int = 64, seed: int = 0) -> Any:
    """A float32 llama with random weights behind the generic adapter; every other layer slides when `window` is set."""
    from mlx_lm.models import llama

    from engine.targets.families.dense import adapt

    args = llama.ModelArgs(
        model_type="llama",
        hidden_size=32,
        num_hidden_layers=layers,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        vocab_size=vocab,
        layer_types=["sliding_attention" if window and i % 2 == 0 else "full_attention" for i in range(layers)],
        sliding_window=window,
    )
    model = llama.Model(args)
    key = mx.random.key(seed)
    from mlx.utils import tree_flatten, tree_unflatten

    weights: list[tuple[str, mx.array]] = tree_flatten(model.parameters())
    fresh = []
    for name, value in weights:
        key, sub = mx.random.split(key)
        scale = 1.0 if value.ndim == 1 else 2.0 / math.sqrt(value.shape[-1])
        noise = mx.random.normal(value.shape, key=sub) * scale
        fresh.append((name, 1.0 + 0.1 * noise if value.ndim == 1 else noise))
    model.update(tree_unflatten(fresh))
    mx.eval(model.parameters())
    return adapt(model, spec(vocab, hidden=32, layers=layers))


class ListContext:
    """Remembers committed ids."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    @property
    def length(self) -> int:
        return len(self.ids)

    def snapshot(self) -> Any:
        copy = ListContext()
        copy.ids = list(self.ids)
        return copy

    @property
    def nbytes(self) -> int:
        return 0

    def restore(self, snap: Any, length: int) -> None:
        self.ids = snap.ids[:length]

    def arrays(self) -> list[mx.array]:
        return []


class ScriptedDrafter:
    """Proposes script(committed ids including pending, k); optionally with a fixed dense q that it draws from."""

    def __init__(
        self,
        script: Callable[[list[int], int], list[int]],
        *,
        name: str = "scripted",
        source: Source = Source.DRAFT,
        max_draft: int = 32,
        taps: tuple[int, ...] = (),
    ) -> None:
        self.script = script
        self.name = name
        self.source = source
        self.max_draft = max_draft
        self.taps = taps

    def new_context(self) -> ListContext:
        return ListContext()

    def context_bytes(self, length: int) -> int:
        return 0

    def observe(self, context: ListContext, taps: mx.array | None, start: int, ids: Sequence[int]) -> None:
        assert start == context.length, (start, context.length)
        if self.taps:
            assert taps is not None
            assert taps.shape[0] == len(ids)
        context.ids += list(ids)

    def silent(self, context: ListContext, pending: int) -> bool:
        return False

    def propose(self, context: ListContext, pending: int, k: int, sampler: Any) -> Proposal:
        drafts = self.script([*context.ids, pending], k)[:k]
        return Proposal(mx.array(drafts, dtype=mx.int32), self.source, drafter=self.name)


class DrawingDrafter(ScriptedDrafter):
    """Draws each draft from logits[last] through the sampler, so q is what it drew from (conditional, as DSpark)."""

    def __init__(self, table: mx.array, **kwargs: Any) -> None:
        super().__init__(lambda ids, k: [], **kwargs)
        self.table = table

    def propose(self, context: ListContext, pending: int, k: int, sampler: Any) -> Proposal:
        last = mx.array(pending)
        tokens, laws = [], []
        for i in range(k):
            token, q = sampler.draw(self.table[last], context.length + 1 + i)
            tokens.append(token)
            laws.append(q)
            last = token
        dense = None if laws[0] is None else DenseQ(mx.stack(laws))
        return Proposal(mx.stack(tokens), self.source, dense, drafter=self.name)


# Running the loop without a thread ------------------------------------------------------------------------------------


def make_sequence(
    target: Any,
    prompt: Sequence[int],
    chain: Any = None,
    *,
    chains: Any = None,
    policy: Any = None,
    listener: Callable[[Any], None] | None = None,
    **request: Any,
) -> Any:
    """A Sequence ready for Prefill; `cap` in the request pins the draft length."""
    from engine.decoding.draft_length.policy import Full, Pinned
    from engine.decoding.sequence import Sequence as Seq
    from engine.decoding.stopping import Finish
    from engine.drafters.chain import NONE
    from engine.sampling.sampler import RowSampler
    from engine.types import Request

    req = Request(list(prompt), id="r", **request)
    chain = chain or NONE

    def policies(cap: int | None, _chain: Any) -> Any:
        return policy or (Full() if cap is None else Pinned(cap))

    return Seq(
        req,
        sampler=RowSampler(req.sampling, req.prompt, target.spec.vocab_size, req.processors),
        finish=Finish(
            ByteTokenizer(),  # pyright: ignore[reportArgumentType]
            stop_ids=target.spec.stop_ids if req.stop_ids is None else req.stop_ids,
            stop=req.stop,
            max_tokens=req.max_tokens,
            room=target.spec.context - len(req.prompt),
        ),
        chain=chain,
        chains=chains or {chain.name: chain},
        policies=policies,
        listener=listener or (lambda event: None),
    )


class FixedIdle:
    """Says that waiting for the host costs so much of a round, whatever was measured: 0 waits always, more never."""

    def __init__(self, share: float) -> None:
        self.share = share

    def observe(self, build_ms: float, host_ms: float, whole_ms: float) -> None:
        pass


class Run:
    """One sequence decoded to its end on the caller's thread."""

    def __init__(
        self,
        target: Any,
        prompt: Sequence[int],
        chain: Any = None,
        *,
        chunk: int = 256,
        loop: Any = None,
        cache: Any = None,
        events: list[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """events: where they go, for who wants them of a run that fails."""
        from engine.decoding.batch import Batch
        from engine.decoding.loop import Loop
        from engine.decoding.prefill import Prefill
        from engine.types import Round, Tokens

        self.sequence = make_sequence(target, prompt, chain, **kwargs)
        self.loop = loop or Loop(target)
        self.batch = Batch()
        prefill = Prefill(target, self.sequence, cache, chunk)
        self.events: list[Any] = [] if events is None else events
        self.events += prefill.start()
        while not prefill.done:
            self.events += prefill.step()
        self.events += self.loop.first(self.sequence, prefill.hidden)
        self.state = prefill.state
        if not self.sequence.finish.reason:
            self.batch.join(self.sequence, prefill.state)
        while not self.sequence.finish.reason:
            self.events += self.loop.step(self.batch)
        self.batch.settle_ahead()
        if self.sequence.error is not None:
            raise self.sequence.error
        self.rounds = [e for e in self.events if isinstance(e, Round)]
        self.text = "".join(e.text for e in self.events if isinstance(e, Tokens))

    @property
    def output(self) -> list[int]:
        return self.sequence.tokens[len(self.sequence.request.prompt) :]
