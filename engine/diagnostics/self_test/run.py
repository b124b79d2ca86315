"""Runs every check on the backend at hand. About half a minute on two cores; downloads nothing, keeps nothing.

What a check raises is a finding, not an error. Knows no terminal.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import mlx.core as mx

from engine import backend
from engine.diagnostics.self_test import (
    drafter_checks,
    kernel_checks,
    law_checks,
    model_checks,
    report,
    state_checks,
    tiny_models,
)
from engine.diagnostics.self_test.findings import Finding
from engine.diagnostics.self_test.model_checks import Subject
from engine.diagnostics.self_test.tiny_configs import FAMILIES, Config
from engine.diagnostics.self_test.tiny_models import Precision

ONE_FAMILY = "llama"
"""What every kind of drafter is tried on; the other families are tried with one that knows the answer."""
WIDE_HEADS: Config = {"head_dim": 32}
"""Heads that can be packed."""
KV_BITS = (4, 8)
FLOAT32_EXPERTS = "MLX's CPU backend multiplies experts in float32 only"
Progress = Callable[[str, int, int], None]
"""(what is checked, how many were, of how many)."""


@dataclass(frozen=True, slots=True)
class Step:
    """A few findings that cost about as much as others."""

    check: str
    subject: str
    precision: str
    work: Callable[[], list[Finding]]


@dataclass(frozen=True)
class _Model:
    """A tiny model that is made when first asked for."""

    family: str
    precision: Precision
    kv_bits: int = 0

    @property
    def name(self) -> str:
        return f"{self.family}, {self.kv_bits}-bit KV cache" if self.kv_bits else self.family

    @cached_property
    def subject(self) -> Subject:
        changes = WIDE_HEADS if self.kv_bits else None
        made = tiny_models.tiny_target(self.family, self.precision, changes=changes, kv_bits=self.kv_bits)
        return Subject(self.name, self.precision, made)

    @cached_property
    def unable(self) -> str:
        """Why this backend cannot run it; empty where it can."""
        experts = any("expert" in name for name in _text(self.family))
        half = self.precision.dtype != mx.float32 and not self.precision.bits
        return FLOAT32_EXPERTS if experts and half and backend.is_cpu() else ""


def _text(family: str) -> Config:
    config = FAMILIES[family]
    return config.get("text_config", config)


def steps(precisions: Sequence[Precision], families: Sequence[str]) -> Iterator[Step]:
    """All checks: from the smallest parts to whole answers, so that the first that fails says most."""
    float32 = next(p for p in tiny_models.precisions() if p.dtype == mx.float32 and not p.bits)
    dense = [p for p in precisions if not p.bits]
    yield Step("kernels", "the dispatcher's", "float32", lambda: list(kernel_checks.dispatched()))
    yield Step("kernels", "random bits", "float32", lambda: [kernel_checks.random_bits()])
    for precision in dense:
        for name in kernel_checks.KERNELS:
            yield Step("kernels", name, precision.name, _one(kernel_checks.run, name, precision))
    for precision in dense:
        yield Step("rope", "positions", precision.name, _one(state_checks.run, "rope", precision))
    for name in ("masks", "windows"):
        yield Step(name, name, "float32", _one(state_checks.run, name, float32))
    for precision in dense:
        # The law is float32 whatever the logits are: in other formats, the simplest and the longest way there.
        for case in law_checks.CASES if precision.dtype == mx.float32 else (law_checks.CASES[0], law_checks.CASES[-1]):
            yield Step("sampling law", case.name, precision.name, _one(law_checks.run, case, precision))
    for precision in precisions:
        models = [_Model(family, precision) for family in families]
        if ONE_FAMILY in families:
            models += [_Model(ONE_FAMILY, precision, bits) for bits in KV_BITS]
        for model in models:
            yield from _of_model(model)


def _of_model(model: _Model) -> Iterator[Step]:
    names = list(model_checks.CHECKS) + ([] if backend.is_cpu() else ["devices"])
    for name in names:
        yield _guarded(model, name, lambda name=name: [model_checks.run(name, model.subject)])
    drafters = drafter_checks.ALL if model.name == ONE_FAMILY else drafter_checks.ALL[:1]
    if model.name == ONE_FAMILY or model.precision.name == "float32":
        for name in drafters:
            yield _guarded(model, "drafters", lambda name=name: [drafter_checks.run(name, model.subject)])


def _guarded(model: _Model, check: str, work: Callable[[], list[Finding]]) -> Step:
    def run() -> list[Finding]:
        if model.unable:
            return [Finding(check, model.name, model.precision.name, tried=False, detail=model.unable)]
        return work()

    return Step(check, model.name, model.precision.name, run)


def _one(run: Callable[..., Finding], what: object, precision: Precision) -> Callable[[], list[Finding]]:
    return lambda: [run(what, precision)]


def self_test(
    version: str,
    on_progress: Progress | None = None,
    *,
    precisions: Sequence[str] = (),
    families: Sequence[str] = tuple(FAMILIES),
    checks: Sequence[str] = (),
) -> report.Report:
    """Everything, or only these number formats, families and checks. Must run on a thread that may compute."""
    began = time.perf_counter()
    chosen = [p for p in tiny_models.precisions() if not precisions or p.name in precisions]
    findings: list[Finding] = []
    with _quick_start() as note:
        todo = [step for step in steps(chosen, families) if not checks or step.check in checks]
        for number, step in enumerate(todo):
            if on_progress is not None:
                on_progress(f"{step.check}, {step.subject}, {step.precision}", number, len(todo))
            findings += _tried(step)
    mx.clear_cache()
    return report.Report(
        facts=report.facts(version),
        findings=tuple(findings),
        precisions=tuple(p.name for p in chosen),
        seconds=time.perf_counter() - began,
        notes=(note,) if note else (),
    )


def _tried(step: Step) -> list[Finding]:
    try:
        return step.work()
    except Exception as error:  # noqa: BLE001  whatever fails here would fail in an answer
        what = " ".join(str(error).split())[:300] or "no further detail"
        return [Finding(step.check, step.subject, step.precision, float("inf"), 0.0, f"{type(error).__name__}: {what}")]


@contextlib.contextmanager
def _quick_start() -> Generator[str]:
    """On the CPU every fused function of every number format costs a run of g++, about a minute in all: there the
    functions are fused by nobody, but for one that is tried by itself."""
    if not backend.is_cpu() or os.environ.get("MLX_DISABLE_COMPILE"):
        yield ""
        return
    mx.disable_compile()
    try:
        yield "functions were not fused, which on a CPU takes a compiler; one fused function was tried by itself"
    finally:
        mx.enable_compile()
