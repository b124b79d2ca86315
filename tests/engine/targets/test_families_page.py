"""docs/families.md says of each family what is measured, and names every model type that has a family of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.targets.families import FAMILIES
from tests.tools.tiny_configs import TEXT
from tests.tools.write_families import COVERS, PAGE, measure

PAGE_TEXT = PAGE.read_text(encoding="utf-8")


def test_every_family_has_its_line() -> None:
    rows = [line for line in PAGE_TEXT.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(COVERS)
    assert all("all equal" in row for row in rows)
    without = {"bonsai_ternary", "bonsai_hadamard", "gemma4", "qwen3"}  # the layers of another line
    assert set(TEXT) - without == set(COVERS)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_model_type_is_named(model_type: str) -> None:
    assert f"`{model_type}`" in PAGE_TEXT


@pytest.mark.parametrize("family", ["lfm2", "gemma4_text"])
def test_the_page_is_what_is_measured(family: str, tmp_path: Path) -> None:
    assert measure(family, tmp_path).row() in PAGE_TEXT
