"""The shape of the code: who may import whom, how long a module and a function may be, that each says what it is."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("engine", "server", "tui", "themes", "cli")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MODULE_LINES, FUNCTION_LINES = 400, 60

LONG_MODULES: dict[str, str] = {}
"""`module.py` to the reason why it is better in one piece; never above 500 lines."""
LONG_FUNCTIONS: dict[str, str] = {}
"""`module.py::function` to the reason why it is better in one piece."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and lines of each, the docstring not counted: what is explained is not what is long."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            explained = node.body[0] if ast.get_docstring(node) is not None else None
            yield node.name, length(node) - (length(explained) if explained else 0)


def test_the_dependency_direction_holds():
    code = "import sys; from importlinter.cli import lint_imports_command as main; sys.exit(main(['--no-cache']))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


def faults(path: Path) -> Iterator[str]:
    """What is wrong with the shape of a module."""
    name, text = name_of(path), path.read_text(encoding="utf-8")
    limit = 500 if name in LONG_MODULES else MODULE_LINES
    if len(text.splitlines()) > limit:
        yield f"{name} is longer than {limit} lines: split it"
    if text.strip() and not ast.get_docstring(ast.parse(text)):
        yield f"{name} does not say what it does"
    for function, lines in functions(path):
        if lines > FUNCTION_LINES and f"{name}::{function}" not in LONG_FUNCTIONS:
            yield f"{name}::{function} has {lines} lines: split it, or give a reason in LONG_FUNCTIONS"


def test_modules_are_short_and_say_what_they_are():
    found = [fault for path in MODULES for fault in faults(path)]
    assert not found, "\n".join(found)


def test_exemptions_are_still_needed():
    long = {f"{name_of(p)}::{name}" for p in MODULES for name, lines in functions(p) if lines > FUNCTION_LINES}
    assert set(LONG_FUNCTIONS) <= long
    assert all((ROOT / name).is_file() for name in LONG_MODULES)
    assert all([*LONG_FUNCTIONS.values(), *LONG_MODULES.values()])


def test_tests_are_no_packages():
    """A package tests/engine would be taken for the engine."""
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.parametrize("front_end", ["textual", "starlette", "uvicorn"])
def test_the_engine_is_loaded_without_a_front_end(front_end: str):
    code = f"import sys, engine.load; sys.exit({front_end!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_models_are_found_and_fetched_without_the_framework():
    """A download is a child process, and the command line completes names: neither waits for MLX."""
    code = "import sys, engine.hub.catalog; sys.exit('mlx.core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
