"""What a learned drafter is, after its packaging has been read: one normalised, frozen description.

Layer ids are 0-based outputs of the target's layers, whatever the file counted from; row conventions, masks and rope
are resolved. Knows no file format and no array.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from engine.errors import DrafterRefused

Backbone = Literal["qwen3", "gemma4"]
MarkovKind = Literal["vanilla", "gated", "rnn"]


MAX_LAYERS = 128
_SIZES = {
    "hidden_size": 1 << 17,
    "intermediate_size": 1 << 20,
    "num_heads": 1 << 12,
    "num_kv_heads": 1 << 12,
    "head_dim": 1 << 14,
    "vocab_size": 1 << 24,
    "block_size": 1 << 10,
}
"""What a config counts, and more than any drafter has."""


def _senseless(name: str, value: object) -> str:
    return f"The drafter's config gives {name} = {str(value)[:80]}, which no drafter has; fetch a complete copy of it."


@dataclass(frozen=True, slots=True)
class Yarn:
    """Stretched rope (arXiv 2309.00071). Only packagings that mean it carry it; elsewhere it is inherited noise."""

    factor: float
    original: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    @property
    def attention_factor(self) -> float:
        return 0.1 * math.log(self.factor) + 1.0


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions. `dims` leading dimensions are rotated; of their pairs only the first `rotated` turn."""

    theta: float
    dims: int
    interleaved: bool = False
    """True: pairs (2i, 2i+1). False: pairs (i, i + dims/2)."""
    rotated: int | None = None
    """None: all pairs. Otherwise the number of pairs that turn (Gemma's proportional rope)."""
    yarn: Yarn | None = None

    def periods(self) -> list[float] | None:
        """Explicit period of each pair (infinite: does not turn), or None where plain theta says it all."""
        half = self.dims // 2
        if self.rotated is None and self.yarn is None:
            return None
        periods = [self.theta ** (2 * i / self.dims) for i in range(half)]
        if self.rotated is not None:
            return [p if i < self.rotated else math.inf for i, p in enumerate(periods)]
        yarn = self.yarn
        assert yarn is not None
        return [p / _yarn_blend(i, self.dims, self.theta, yarn) for i, p in enumerate(periods)]


def _yarn_blend(i: int, dims: int, theta: float, yarn: Yarn) -> float:
    """Factor on the frequency of pair i: 1 for fast pairs, 1/factor for slow ones, a ramp between."""

    def pair_of(turns: float) -> float:
        return dims * math.log(yarn.original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_of(yarn.beta_fast)), 0)
    high = min(math.ceil(pair_of(yarn.beta_slow)), dims - 1)
    ramp = min(1.0, max(0.0, (i - low) / max(high - low, 1e-3)))
    return (1.0 - ramp) + ramp / yarn.factor


@dataclass(frozen=True, slots=True)
class LayerRule:
    """What a draft layer's block rows may see."""

    window: int | None = None
    """A key is visible iff query position - key position < window; None: everything."""
    causal: bool = False
    """Whether a block row is blind to later block rows."""


@dataclass(frozen=True, slots=True)
class LogSnr:
    """Noise-level conditioning of the block's embeddings: row 0 is at `high`, mask rows at `low`."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Selector:
    """DFlash 2: dynamic convolutions in every layer, and a walk over the best candidates of each row."""

    rank: int
    top_k: int
    conv_group: int
    conv_kernel: int


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """Everything that decides a learned drafter's forward. Whether it owns embedding, head, confidence head or sinks is
    decided by its tensors, not here."""

    packaging: str
    kind: str
    """A row of `registry.KINDS`."""
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    vocab_size: int
    """Target vocabulary that the file was made for."""
    block_size: int
    """Rows of a block, the anchor included."""
    logits_start: int
    """First block row that predicts: 0 when row i predicts the token after it, 1 when it predicts its own position."""
    mask_token_id: int | None
    """What fills a block's mask rows; None where the file carries the row itself."""
    taps: tuple[int, ...]
    """Target layers, 0-based outputs, ascending; -1 is the embedding output."""
    layers: tuple[LayerRule, ...]
    rope: Rope
    backbone: Backbone = "qwen3"
    num_target_layers: int | None = None
    draft_vocab_size: int | None = None
    """Set when the head speaks a reduced vocabulary of this size."""
    attention_bias: bool = False
    gated_query: bool = False
    """The query projection carries a sigmoid gate for the attention output."""
    offset_norms: bool = False
    """Norm weights are stored minus one."""
    k_eq_v: bool = False
    """Gemma: values are the raw key projection; there is no value projection."""
    embed_scale: float | None = None
    """Factor on the rows of the embedding table; None: none, or what the kind takes over from its target."""
    markov_rank: int = 0
    markov_kind: MarkovKind = "vanilla"
    confidence_with_markov: bool = True
    confidence_temperatures: tuple[float, ...] = ()
    """One per draft position, dividing the confidence logit; empty: none."""
    output_multiplier: float = 1.0
    value_scale: float = 1.0
    """Factor on the values of the attention, hence on its output."""
    softcap: float | None = None
    """cap * tanh(l / cap) on base logits, before any Markov bias."""
    log_snr: LogSnr | None = None
    selector: Selector | None = None
    quantization: tuple[int, int] | None = None
    """(group size, bits) of the file's own MLX quantisation."""
    notes: tuple[str, ...] = field(default=())
    """What a careful reader should check, in sentences; shown by `probe` and `doctor`."""

    def __post_init__(self) -> None:
        """Refuse numbers that no drafter has, wherever they were read: a forward would fail on them, or take for ever.

        Raises:
            DrafterRefused: with the first of them.
        """
        positive = {name: getattr(self, name) for name in _SIZES} | {"rope_theta": self.rope.theta}
        if self.softcap is not None:
            positive["final_logit_softcapping"] = self.softcap
        positive |= {f"confidence_temperatures {i}": t for i, t in enumerate(self.confidence_temperatures)}
        for name, value in positive.items():
            if type(value) not in (int, float) or not 0 < value <= _SIZES.get(name, math.inf) or value == math.inf:
                raise DrafterRefused(_senseless(name, value))
        if not 1 <= len(self.layers) <= MAX_LAYERS:
            raise DrafterRefused(_senseless("num_hidden_layers", len(self.layers)))
        if self.num_heads % self.num_kv_heads or self.rope.dims > self.head_dim or self.rope.dims % 2:
            raise DrafterRefused(
                f"The drafter's {self.num_heads} heads of width {self.head_dim} do not go with {self.num_kv_heads} key "
                f"heads and {self.rope.dims} rotated dimensions; fetch a complete copy."
            )

    @property
    def max_draft(self) -> int:
        return self.block_size - self.logits_start

    @property
    def causal(self) -> bool:
        """Whether every layer is causal: then a shorter block drafts the same tokens."""
        return all(rule.causal for rule in self.layers)

    @property
    def head_rows(self) -> int:
        return self.draft_vocab_size or self.vocab_size
