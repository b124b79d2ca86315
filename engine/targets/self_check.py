"""About a second of measuring at load: does this model, with this library version, do what speculation relies on?

P0 its logits are numbers; P1 the tapped forward gives the library's own; P2 the last tap, normed and projected, is
those logits; P3 reading in two parts equals reading at once; P4 a rolled-back round leaves no trace; P5 the window
state hides and keeps the right rows. What failed decides what is still offered. Knows no drafter.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, cast

import mlx.core as mx

from engine import backend
from engine.kv_cache.base import Snapshot, State
from engine.kv_cache.masks import Mask
from engine.kv_cache.recurrent import RecurrentState
from engine.kv_cache.sliding_window import WindowKV
from engine.paths import write_atomically
from engine.targets.base import Target
from engine.targets.families.dense import MlxTarget

VERSION = 3
"""Raise when a check changes, so that cached verdicts are made again."""
IDS = 16
SPLIT = 12
BLOCK = 6
KEEP = 4
LIMITS = {mx.float32: 2e-3, mx.float16: 0.05, mx.bfloat16: 0.1}
"""Largest relative (root mean square) deviation: rounding passes, a stale or missing row does not."""
GPU_FLOAT32 = 0.02
"""The same in float32 on a GPU, which may round the factors of a product to 10 bits (MLX_ENABLE_TF32)."""
EXPERTS = 3.0
"""Routing amplifies rounding: a near tie sends a row to another expert."""
NORMS = ("norm", "norm_f", "embedding_norm", "final_layernorm", "ln_f")

Offer = Literal["all", "lookup", "plain", "refused"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a loaded target may be used for."""

    offer: Offer
    """all: every drafter. lookup: no learned drafters. plain: no drafting. refused: not even plain decoding."""
    reason: str = ""
    """One sentence when something failed."""
    deviations: dict[str, float] = field(default_factory=dict[str, float])
    """Relative deviation by check."""
    limit: float = 0.0
    ms: float = 0.0


def probe(target: MlxTarget) -> Verdict:
    """Run all checks on the model thread. Never raises: an exception is a failed check."""
    began = time.perf_counter()
    deviations: dict[str, float] = {}
    limit = 0.0
    subject = _Subject(target)
    checks = (_numbers, _logits, _taps, _continuation, _rollback, _window)
    for name, check in zip(_FAILURES, checks, strict=True):
        try:
            deviation, dtype = check(subject)
        except Exception as error:  # noqa: BLE001  whatever a model raises here, it would raise in an answer
            reason = f"{' '.join(str(error).split())[:200] or type(error).__name__}"
            return _verdict({**deviations, name: float("inf")}, name, limit, began, reason)
        limit = limit_of(dtype, target.spec.experts is not None)
        deviations[name] = deviation
        if not deviation <= limit:
            return _verdict(deviations, name, limit, began, f"deviation {deviation:.1e}, limit {limit:.1e}")
    return Verdict("all", "", deviations, limit, (time.perf_counter() - began) * 1e3)


def limit_of(dtype: mx.Dtype, experts: bool) -> float:
    """Largest deviation that rounding explains in a model of this number format."""
    limit = LIMITS.get(dtype, LIMITS[mx.bfloat16])
    if dtype == mx.float32 and not backend.is_cpu():
        limit = GPU_FLOAT32
    return limit * (EXPERTS if experts else 1.0)


_FAILURES: dict[str, tuple[Offer, str]] = {
    "P0": ("refused", "its output is not a number (NaN or infinite), as with damaged weights; download it again"),
    "P1": ("refused", "its logits are not those of mlx-lm"),
    "P2": ("lookup", "its hidden states cannot be read, so learned drafters are off"),
    "P3": ("refused", "reading a prompt in parts changes its answer"),
    "P4": ("plain", "a rejected draft leaves traces, so drafting is off"),
    "P5": ("plain", "its window keeps rejected drafts, so drafting is off"),
}


def _verdict(deviations: dict[str, float], failed: str, limit: float, began: float, detail: str) -> Verdict:
    offer, what = _FAILURES[failed]
    reason = f"This model does not behave as expected here: {what} ({failed}: {detail})."
    return Verdict(offer, reason, deviations, limit, (time.perf_counter() - began) * 1e3)


def feed(target: Target, state: State, ids: Sequence[int], keep: int | None = None, *, record: bool = True) -> mx.array:
    """Logits [T, V] of one round of one sequence that keeps `keep` rows, by default all; evaluated."""
    with state.begin(len(ids), record=record) as round:
        body = target.body(mx.array([list(ids)], dtype=mx.int32), state)
        round.commit(len(ids) if keep is None else keep)
    logits = target.logits(body.hidden)[0]
    mx.eval(logits, state.arrays())
    return logits


# The checks: relative deviation, and the number format it was measured in ---------------------------------------------

Measured = tuple[float, mx.Dtype]


class _Subject:
    """A target under test, and what several checks look at: a forward costs most of the probe's time."""

    def __init__(self, target: MlxTarget) -> None:
        self.target = target
        self.ids = self.words(IDS)

    def words(self, count: int, seed: int = 0) -> list[int]:
        """Varied ordinary ids: special ones stand at the ends of most vocabularies."""
        low, high = self.target.spec.vocab_size // 10, self.target.spec.vocab_size * 7 // 10
        return [low + (7919 * (i + 1) + 104729 * seed + 31 * i * i) % max(1, high - low) for i in range(count)]

    def feed(self, state: State, ids: Sequence[int], keep: int | None = None, *, record: bool = True) -> mx.array:
        return feed(self.target, state, ids, keep, record=record)

    @cached_property
    def whole(self) -> tuple[mx.array, mx.array]:
        """Logits and last residual stream of all ids in one forward with every layer tapped."""
        bits, self.target.kv_bits = self.target.kv_bits, 0
        try:
            state = self.target.new_state()  # the library has no state to compare a quantised one with
        finally:
            self.target.kv_bits = bits
        with state.begin(IDS) as round:
            body = self.target.body(mx.array([self.ids], dtype=mx.int32), state, range(self.target.spec.num_layers))
            round.commit(IDS)
        assert body.taps is not None
        logits, last = self.target.logits(body.hidden), body.taps[..., -self.target.spec.hidden_size :]
        mx.eval(logits, last)
        return logits, last

    @cached_property
    def begun(self) -> Snapshot:
        """The state after the first part of the ids."""
        state = self.target.new_state()
        self.feed(state, self.ids[:SPLIT], record=False)
        return state.snapshot()

    def resumed(self) -> State:
        state = self.target.new_state()
        state.restore(self.begun)
        return state


def _numbers(subject: _Subject) -> Measured:
    logits = subject.whole[0]
    return 0.0 if mx.all(mx.isfinite(logits)).item() else float("inf"), logits.dtype


def _logits(subject: _Subject) -> Measured:
    native: mx.array = subject.target.model(mx.array([subject.ids], dtype=mx.int32))
    return apart(subject.whole[0], native), native.dtype


def _taps(subject: _Subject) -> Measured:
    logits, last = subject.whole
    inner: Any = subject.target.inner()
    norm = next((module for name in NORMS if (module := inner.get(name)) is not None), None)
    if norm is None:
        return 0.0, logits.dtype  # nothing to compare with; P1 ran with every layer tapped
    return apart(subject.target.logits(norm(last)), logits), logits.dtype


def _continuation(subject: _Subject) -> Measured:
    rest = subject.feed(subject.resumed(), subject.ids[SPLIT:])
    if not subject.target.kv_bits:
        return apart(rest, subject.whole[0][0, SPLIT:]), rest.dtype
    whole = subject.feed(subject.target.new_state(), subject.ids)
    return apart(rest, whole[SPLIT:]), rest.dtype


def _rollback(subject: _Subject) -> Measured:
    """Verify a block, keep a part, go on with one row and with two; against reading the kept tokens at once."""
    drafts, after = subject.words(BLOCK, 1), subject.words(3, 2)
    warm, cold = subject.resumed(), subject.target.new_state()
    subject.feed(warm, drafts, KEEP)
    found = mx.concatenate([subject.feed(warm, after[:1]), subject.feed(warm, after[1:])])
    expected = subject.feed(cold, [*subject.ids[:SPLIT], *drafts[:KEEP], *after], record=False)[-len(after) :]
    states = [apart(a, b) for a, b in zip(_slots(warm), _slots(cold), strict=True)]
    return max(apart(found, expected), *states, 0.0), expected.dtype


def _slots(state: State) -> list[mx.array]:
    return [x for layer in state.layers if isinstance(layer, RecurrentState) for x in layer.arrays()]


def _window(subject: _Subject) -> Measured:
    """On synthetic rows that carry their position: after a rejected block past the edge, a row sees what it should."""
    for window in {layer.window for layer in subject.target.new_state().layers if isinstance(layer, WindowKV)}:
        layer = WindowKV(window)
        at = 0
        for width, keep in ((window - 1, window - 1), (BLOCK, 2), (1, 1), (BLOCK, 1), (1, 1)):
            layer.begin(width, record=True)
            mask = layer.make_mask(width)
            rows = mx.arange(at, at + width, dtype=mx.float32).reshape(1, 1, width, 1)
            keys, _ = layer.update_and_fetch(rows, rows)
            layer.commit([keep])
            at += keep
            visible = _visible(keys[0, 0, :, 0], mask)
            last = at - keep + width - 1
            if visible != [float(p) for p in range(max(0, last - window + 1), last + 1)]:
                return float("inf"), mx.float32
    return 0.0, mx.float32


def _visible(keys: mx.array, mask: Mask) -> list[float]:
    """What the last query sees."""
    values = [float(x) for x in keys.tolist()]  # type: ignore[union-attr]
    if not isinstance(mask, mx.array):
        return values
    return [x for x, shown in zip(values, mask[-1].tolist(), strict=True) if shown]  # type: ignore[arg-type]


def apart(a: mx.array, b: mx.array) -> float:
    """Root mean square of the difference, relative to that of `b` around its mean."""
    return float(deviation(a, b))


def deviation(a: mx.array, b: mx.array) -> mx.array:
    """`apart`, not yet computed."""
    a, b = a.astype(mx.float32), b.astype(mx.float32)
    spread = mx.sqrt(mx.mean(mx.square(b - mx.mean(b)))) + 1e-9
    return mx.sqrt(mx.mean(mx.square(a - b))) / spread


# Remembering verdicts -------------------------------------------------------------------------------------------------


def cached_probe(target: MlxTarget, folder: Path) -> Verdict:
    """The verdict for these weights and these library versions, measured at most once. A cache that cannot be written
    costs the second again, and nothing else."""
    path = folder / f"{target.spec.fingerprint}-{VERSION}-{libraries()}.json" if target.spec.fingerprint else None
    try:
        return Verdict(**remembered(path, lambda: asdict(probe(target))))
    except TypeError:  # written by another version of this program
        return probe(target)


def remembered(path: Path | None, find_out: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a file says, else what is found out now, and written there. None: never written."""
    if path is not None:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(found, dict):
                return cast("dict[str, Any]", found)
        except (OSError, ValueError):
            pass
    made = find_out()
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(made))
        except OSError:
            pass
    return made


def libraries() -> str:
    """The device, and the versions that decide what a model computes."""
    found: list[str] = [str(mx.default_device()).split("(")[-1].split(",")[0]]
    for package in ("mlx", "mlx-lm"):
        try:
            found.append(version(package))
        except PackageNotFoundError:
            found.append("none")
    return "-".join(found)
