"""The table of drafter kinds is the only place that names them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from engine.drafters import registry
from engine.training import settings

ROOT = Path(__file__).parents[3]
HOME = ("engine/drafters/", "engine/hub/catalog.py", "engine/training/")
"""Where the kinds live, the catalog whose cards are named by them, and what makes their files."""
PRODUCT = {
    ("cli/commands/agents.py", "dspark"): "the name under which other programs know this server",
    ("engine/prefix_cache/serialization.py", "dspark"): "the key of our entry in a cache file",
    ("tui/terminal/crash.py", "dspark"): "the root of our loggers",
}


def words(path: Path) -> Iterator[str]:
    """Identifiers, and the words of all strings that are not documentation."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield from re.split(r"[\s,;|+()'\"`]+|:\d+|[.;,:] ", node.value)
        for field in ("id", "attr", "name", "arg", "asname"):
            yield from str(getattr(node, field, None) or "").split(".")


def test_a_kind_is_named_by_its_table_its_cards_and_its_trainer_alone() -> None:
    kinds = {name.lower() for name in registry.learned()}
    found = {
        (name, word)
        for package in ("engine", "server", "tui", "cli", "themes")
        for path in (ROOT / package).rglob("*.py")
        if not (name := path.relative_to(ROOT).as_posix()).startswith(HOME)
        for word in words(path)
        if word.lower() in kinds
    }
    assert found == set(PRODUCT), "ask engine/drafters/registry.py instead of naming a kind"


def test_rows_are_what_they_say() -> None:
    for name in registry.learned():
        assert registry.kind(name).name == name
    assert len({row.name for row in registry.layouts()}) == len(registry.LAYOUTS)
    assert set(settings.KINDS) <= set(registry.learned())


def test_reading_the_table_imports_nothing() -> None:
    code = "import sys; from engine.drafters import registry; registry.names(); sys.exit('mlx.core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
