"""docs/backends.md lists every call that differs by backend, and no other; Metal's own are reached on Metal only."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine import backend
from engine.diagnostics.self_test.model_checks import CHECKS
from engine.diagnostics.self_test.run import self_test

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "backends.md").read_text(encoding="utf-8")
DIFFERS = re.compile(
    r"mx\.(metal|cuda|fast)\.\w+"
    r"|mx\.(compile|enable_compile|disable_compile|custom_function|async_eval|clear_cache|clear_streams|synchronize)"
    r"|mx\.(device_info|default_device|stream|new_stream|cpu|gpu|DeviceType\.\w+|set_\w+|get_\w+|reset_\w+)"
    r"|mx\.(quantize|quantized_matmul|dequantize|from_fp8|conv1d|gather_\w+)"
    r"|backend\.(is_cpu|float32_only|compute_thread|release_thread|pin|raise_memory|keep_memory)"
    r"|device_kind"
)


def spelled(node: ast.AST) -> str:
    """a.b.c, or nothing."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def in_the_code() -> dict[str, set[str]]:
    """Packages by call."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in ("engine", "cli", "server", "tui"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if DIFFERS.fullmatch(name := spelled(node)):
                    found[name].add("/".join(path.relative_to(ROOT).parts[:2]))
    return dict(found)


def on_the_page() -> dict[str, set[str]]:
    rows = [line.split("|")[1:-1] for line in PAGE.splitlines() if re.match(r"\| `(mx\.|backend\.|device_kind)", line)]
    assert all(len(row) == 4 and row[3].strip() for row in rows)
    return {row[0].strip().strip("`"): set(re.findall(r"`([^`]+)`", row[1])) for row in rows}


def test_every_call_that_differs_by_backend_is_on_the_page() -> None:
    assert in_the_code() == on_the_page()


def test_every_check_of_the_self_test_is_explained() -> None:
    explained = set(re.findall(r"`([^`]+)`", " ".join(re.findall(r"^\| (`.*?) \|", PAGE, flags=re.M))))
    assert {*CHECKS, "kernels", "rope", "masks", "windows", "sampling law", "drafters", "devices"} <= explained


@pytest.mark.skipif(not backend.is_cpu(), reason="about the CPU")
def test_no_call_that_is_metals_is_reached_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*_: Any, **__: Any) -> Any:
        raise AssertionError("a call for Metal was reached on the CPU")

    for name in dir(mx.metal):
        if not name.startswith("_") and name != "is_available":
            monkeypatch.setattr(mx.metal, name, reached)
    monkeypatch.setattr(mx, "set_wired_limit", reached)
    monkeypatch.setattr(mx.fast, "metal_kernel", reached)
    assert "nothing was done" in backend.pin(1)
    assert backend.raise_memory() == ""
    assert not backend.report().metal
    for family in ("qwen3_5", "nemotron_h", "lfm2"):
        found = self_test("0", precisions=["float32"], families=[family], checks=("rollback", "batch", "kernels"))
        assert found.ok, found.text()


@pytest.mark.parametrize("family", ["llama", "gemma4_dense", "qwen3_5"])
def test_the_mask_that_gpus_get_shows_the_same(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word "causal" for the kernel, which the CPU is never given."""
    from types import SimpleNamespace

    from engine.kv_cache import masks

    given: list[str] = []
    honest = masks.uniform_mask

    def seen(*args: Any) -> Any:
        mask = honest(*args)
        given.append(mask if isinstance(mask, str) else "")
        return mask

    monkeypatch.setattr(masks, "backend", SimpleNamespace(is_cpu=lambda: False))
    monkeypatch.setattr("engine.kv_cache.full.uniform_mask", seen)
    checks = ("masks", "windows", "rollback", "widths", "batch", "reading")
    found = self_test("0", precisions=["float32"], families=[family], checks=checks)
    assert found.ok, found.text()
    assert "causal" in given
