"""About a second of measuring at load: does this model, with this library version, do what speculation relies on?

P1 the tapped forward gives the library's own logits; P2 the last tap, normed and projected, is those logits; P3 reading
in two parts equals reading at once; P4 a rolled-back round leaves no trace; P5 the window state hides and keeps the
right rows. What failed decides what is still offered. Knows no drafter.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx

from engine.state.base import State
from engine.state.masks import Mask
from engine.state.recurrent import RecurrentState
from engine.state.window import WindowKV
from engine.targets.dense import MlxTarget

VERSION = 1
"""Raise when a check changes, so that cached verdicts are made again."""
IDS = 16
SPLIT = 12
BLOCK = 6
KEEPS = (1, 4)
LIMITS = {mx.float32: 2e-3, mx.float16: 0.05, mx.bfloat16: 0.1}
"""Largest relative (root mean square) deviation: rounding passes, a stale or missing row does not."""
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
    for name, check in (("P1", _logits), ("P2", _taps), ("P3", _continuation), ("P4", _rollback), ("P5", _window)):
        try:
            deviation, dtype = check(target)
        except Exception as error:  # noqa: BLE001  whatever a model raises here, it would raise in an answer
            reason = f"{' '.join(str(error).split())[:200] or type(error).__name__}"
            return _verdict({**deviations, name: float("inf")}, name, limit, began, reason)
        limit = LIMITS.get(dtype, LIMITS[mx.bfloat16]) * (EXPERTS if target.spec.experts else 1.0)
        deviations[name] = deviation
        if not deviation <= limit:
            return _verdict(deviations, name, limit, began, f"deviation {deviation:.1e}, limit {limit:.1e}")
    return Verdict("all", "", deviations, limit, (time.perf_counter() - began) * 1e3)


_FAILURES: dict[str, tuple[Offer, str]] = {
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


# The checks: relative deviation, and the number format it was measured in ---------------------------------------------

Measured = tuple[float, mx.Dtype]


def _ids(target: MlxTarget, count: int, seed: int = 0) -> list[int]:
    """Varied ordinary ids: special ones stand at the ends of most vocabularies."""
    low, high = target.spec.vocab_size // 10, target.spec.vocab_size * 7 // 10
    return [low + (7919 * (i + 1) + 104729 * seed + 31 * i * i) % max(1, high - low) for i in range(count)]


def _feed(target: MlxTarget, state: State, ids: Sequence[int], keep: int, *, record: bool = True) -> mx.array:
    with state.begin(len(ids), record=record) as round:
        logits = target.logits(target.body(mx.array([list(ids)], dtype=mx.int32), state).hidden)
        round.commit(keep)
    mx.eval(logits, state.arrays())
    return logits[0]


def _logits(target: MlxTarget) -> Measured:
    ids = mx.array([_ids(target, IDS)], dtype=mx.int32)
    bits, target.kv_bits = target.kv_bits, 0
    try:
        state = target.new_state()  # the library has no state to compare a quantised one with
    finally:
        target.kv_bits = bits
    with state.begin(IDS) as round:
        body = target.body(ids, state, range(target.spec.num_layers))
        round.commit(IDS)
    native: mx.array = target.model(ids)
    return _apart(target.logits(body.hidden), native), native.dtype


def _taps(target: MlxTarget) -> Measured:
    ids = mx.array([_ids(target, IDS)], dtype=mx.int32)
    state = target.new_state()
    with state.begin(IDS) as round:
        body = target.body(ids, state, [target.spec.num_layers - 1])
        round.commit(IDS)
    assert body.taps is not None
    inner: Any = target.inner()
    norm = next((module for name in NORMS if (module := inner.get(name)) is not None), None)
    if norm is None:
        return 0.0, body.hidden.dtype  # nothing to compare with; P1 ran with every layer tapped
    logits = target.logits(body.hidden)
    return _apart(target.logits(norm(body.taps)), logits), logits.dtype


def _continuation(target: MlxTarget) -> Measured:
    ids = _ids(target, IDS)
    whole = _feed(target, target.new_state(), ids, IDS)
    state = target.new_state()
    _feed(target, state, ids[:SPLIT], SPLIT, record=False)
    rest = _feed(target, state, ids[SPLIT:], IDS - SPLIT)
    return _apart(rest, whole[SPLIT:]), whole.dtype


def _rollback(target: MlxTarget) -> Measured:
    ids, drafts, after = _ids(target, SPLIT), _ids(target, BLOCK, 1), _ids(target, 3, 2)
    start = target.new_state()
    _feed(target, start, ids, SPLIT, record=False)
    begin = start.snapshot()
    worst, dtype = 0.0, mx.float32
    for keep in KEEPS:
        warm, cold = target.new_state(), target.new_state()
        warm.restore(begin)
        _feed(target, warm, drafts, keep)
        _feed(target, cold, [*ids, *drafts[:keep]], SPLIT + keep, record=False)
        worst = max(worst, *(_apart(a, b) for a, b in zip(_slots(warm), _slots(cold), strict=True)), 0.0)
        one, two = _feed(target, warm, after[:1], 1), _feed(target, warm, after[1:], 2)
        expected = _feed(target, cold, after, 3)
        worst = max(worst, _apart(mx.concatenate([one, two]), expected))
        dtype = expected.dtype
    return worst, dtype


def _slots(state: State) -> list[mx.array]:
    return [x for layer in state.layers if isinstance(layer, RecurrentState) for x in layer.arrays()]


def _window(target: MlxTarget) -> Measured:
    """On synthetic rows that carry their position: after a rejected block past the edge, a row sees what it should."""
    for window in {layer.window for layer in target.new_state().layers if isinstance(layer, WindowKV)}:
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


def _apart(a: mx.array, b: mx.array) -> float:
    """Root mean square of the difference, relative to that of `b` around its mean."""
    a, b = a.astype(mx.float32), b.astype(mx.float32)
    spread = mx.sqrt(mx.mean(mx.square(b - mx.mean(b)))) + 1e-9
    return float(mx.sqrt(mx.mean(mx.square(a - b))) / spread)


# Remembering verdicts -------------------------------------------------------------------------------------------------


def cached_probe(target: MlxTarget, folder: Path) -> Verdict:
    """The verdict for these weights and these library versions, measured at most once. A cache that cannot be written
    costs the second again, and nothing else."""
    path = folder / f"{target.spec.fingerprint or 'unknown'}-{_versions()}.json"
    try:
        return Verdict(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        pass
    verdict = probe(target)
    if target.spec.fingerprint:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
                json.dump(asdict(verdict), file)
            os.replace(file.name, path)
        except OSError:
            pass
    return verdict


def _versions() -> str:
    found: list[str] = [str(VERSION), str(mx.default_device()).split("(")[-1].split(",")[0]]
    for package in ("mlx", "mlx-lm"):
        try:
            found.append(version(package))
        except PackageNotFoundError:
            found.append("none")
    return "-".join(found)
