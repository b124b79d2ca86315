"""The self-test passes here in every number format, tells ties from errors, and its text can be shown to anybody."""

from __future__ import annotations

import json
import math
from pathlib import Path

import mlx.core as mx
import pytest

from engine.diagnostics.self_test import kernel_checks, law_checks, model_checks, run
from engine.diagnostics.self_test.chi_square import chi_square_p
from engine.diagnostics.self_test.findings import Finding, Gauge, Tie, ulps
from engine.diagnostics.self_test.model_checks import Subject
from engine.diagnostics.self_test.report import Report, without_paths
from engine.diagnostics.self_test.run import self_test
from engine.diagnostics.self_test.tiny_configs import FAMILIES
from engine.diagnostics.self_test.tiny_models import precisions, tiny_target
from engine.targets.families import FAMILIES as ADAPTERS

NAMES = [precision.name for precision in precisions()]
PARTS = ("kernels", "rope", "masks", "windows", "rollback", "widths", "batch", "prefix cache", "reading", "load")


DEAR = pytest.mark.slow


@pytest.mark.parametrize(
    ("family", "precision"),
    [
        *(("lfm2", name) for name in NAMES),
        *(pytest.param("gemma4_dense", name, marks=[] if name == "bfloat16" else DEAR) for name in NAMES),
        *(pytest.param("qwen3_5", name, marks=[] if name == "4 bits" else DEAR) for name in NAMES),
    ],
)
def test_passes_in_every_number_format(family: str, precision: str) -> None:
    found = self_test("0", precisions=[precision], families=[family], checks=PARTS)
    assert found.ok, found.text()
    assert {f.check for f in found.findings if f.tried and f.subject == family} >= {
        "rollback",
        "widths",
        "prefix cache",
    }


@pytest.mark.parametrize("precision", [NAMES[0], *(pytest.param(name, marks=DEAR) for name in NAMES[1:])])
def test_every_drafter_is_lossless_in_every_number_format(precision: str) -> None:
    found = self_test("0", precisions=[precision], families=["llama"], checks=("drafters",))
    assert found.ok, found.text()
    assert len(found.findings) >= 9


def test_the_law_holds_and_a_biased_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    float32 = precisions()[0]
    assert all(law_checks.run(case, float32).ok for case in law_checks.CASES[:3])
    honest = law_checks.transform
    tilt = mx.arange(law_checks.VOCAB) % 2 * 1.0 + 0.5
    monkeypatch.setattr(law_checks, "transform", lambda *given: honest(*given) * tilt / mx.sum(honest(*given) * tilt))
    assert not law_checks.run(law_checks.CASES[0], float32).ok
    assert chi_square_p([10, 10], [10.0, 10.0]) == 1.0


@pytest.mark.slow
def test_the_whole_passes() -> None:
    found = self_test("0")
    assert found.ok, found.text()
    assert {f.check for f in found.findings} == {*PARTS, "sampling law", "drafters"}


def test_every_family_with_a_file_of_its_own_is_tried() -> None:
    """By the adapter: several model types share one."""
    tried = {ADAPTERS[kind] for family in FAMILIES for kind in (FAMILIES[family]["model_type"],) if kind in ADAPTERS}
    assert tried == set(ADAPTERS.values())


def test_a_gpu_is_compared_with_the_cpu_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject("llama", precisions()[0], tiny_target("llama", precisions()[0]))
    assert model_checks.run("devices", subject).ok
    half = Subject("llama", precisions()[1], subject.target)
    assert not model_checks.run("devices", half).tried
    monkeypatch.setattr(mx, "stream", lambda _: (_ for _ in ()).throw(RuntimeError("no CPU backend in this build")))
    told = model_checks.run("devices", subject)
    assert not told.tried and "no CPU backend" in told.detail


def test_an_alternative_for_other_devices_is_not_tried() -> None:
    assert not any(found.tried for found in kernel_checks.dispatched("cuda"))
    assert all(found.ok for found in kernel_checks.dispatched("cpu"))


def test_what_a_check_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[Finding]:
        raise RuntimeError("no such kernel in /home/somebody/mlx/lib.metallib")

    monkeypatch.setattr(run, "steps", lambda *_: [run.Step("kernels", "broken", "float32", broken)])
    found = self_test("0")
    assert not found.ok
    text = found.text()
    assert "WRONG:" in text and "no such kernel in lib.metallib" in text and "somebody" not in text


# Numbers --------------------------------------------------------------------------------------------------------------


def test_neighbouring_numbers_are_one_unit_apart() -> None:
    x = mx.array([1.0, -1.0, 0.0, 1e-45, 3e38])
    assert ulps(x, x) == 0
    assert ulps(mx.array([1.0]), mx.array([1.0 + 2**-23])) == 1
    assert ulps(mx.array([-(1.0 + 2**-23)]), mx.array([-1.0])) == 1
    assert ulps(mx.array([0.0]), mx.array([-0.0])) == 0
    assert ulps(mx.array([1.0]), mx.array([1.0], dtype=mx.float16)) == math.inf


def test_ties_are_told_from_errors() -> None:
    expected = mx.array([[1.0, 0.99, 0.0], [1.0, 0.5, 0.0]])
    gauge = Gauge(0.1)
    gauge.tokens(mx.array([[0.99, 1.0, 0.0], [1.0, 0.5, 0.0]]), expected, mx.float32, "here")
    gauge.settle()
    assert gauge.deviation == 0
    assert [(t.where, round(t.margin, 3)) for t in gauge.ties] == [("here, row 0", 0.01)]
    gauge.tokens(mx.array([[1.0, 0.99, 0.0], [0.5, 1.0, 0.0]]), expected, mx.float32, "there")
    gauge.settle()
    assert gauge.deviation == math.inf and "there, row 1" in gauge.detail


def test_a_deviation_that_is_not_a_number_fails() -> None:
    gauge = Gauge(1.0)
    gauge.take(math.nan, "in the middle")
    gauge.take(0.5, "later")
    assert not gauge.finding("c", "s", "p").ok
    assert gauge.detail == "in the middle"


# The text -------------------------------------------------------------------------------------------------------------


def report(*findings: Finding) -> Report:
    return Report({"version": "1", "backend": "cpu"}, findings, ("float32", "bfloat16"), 3.0)


def test_the_table_the_ties_and_the_verdict() -> None:
    tie = Tie("width 3, row 1", 0.012, 0.5)
    good = Finding("widths", "llama", "float32", 3e-7, 2e-3)
    close = Finding("widths", "llama", "bfloat16", 0.01, 0.1, ties=(tie,))
    untried = Finding("widths", "qwen3_moe", "bfloat16", tried=False, detail="not here")
    text = report(good, close, untried).text()
    assert "widths  1 ok 3e-07  1 ok 1e-02, 1 tie" in text
    assert "widths, llama, bfloat16, width 3, row 1: 0.012 apart (limit 0.5)" in text
    assert "qwen3_moe in bfloat16: not here" in text
    assert text.endswith("All 2 checks passed in 3 s.")
    wrong = report(good, Finding("rope", "positions", "float32", 0.5, 2e-3, "5 rows from 7"))
    assert not wrong.ok
    assert "rope, positions, float32: 5 rows from 7 (deviation 0.5, limit 0.002)" in wrong.text()
    assert "1 of 2 checks FAILED" in wrong.text()


def test_no_personal_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DSPARK_BLAS", str(tmp_path / "secret" / "libopenblas.so"))
    found = self_test("0", precisions=["float32"], families=[], checks=("masks",))
    for text in (found.text(), json.dumps(found.as_dict())):
        assert "secret" not in text and str(tmp_path) not in text and str(Path.home()) not in text
    assert "libopenblas.so" in found.facts["variables"]
    assert (
        without_paths("in '/Users/ann/models/x.gguf': no; 3/4 and C:\\Users\\ann\\y.so")
        == "in 'x.gguf': no; 3/4 and y.so"
    )
    assert without_paths("~/models/a/b.json failed") == "b.json failed"


def test_json_has_no_infinity() -> None:
    whole = report(Finding("rope", "positions", "float32", math.inf, 0.0, "wrong")).as_dict()
    assert json.loads(json.dumps(whole, allow_nan=False))["findings"][0]["deviation"] is None
