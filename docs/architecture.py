"""Draws docs/architecture.svg and the table of docs/architecture.md: packages and their imports, as the code has them.

    python docs/architecture.py            writes both
    python docs/architecture.py --check    exits with 1 where they are not what the code says

Reads imports and docstrings as text; runs nothing of the project. Arrows that follow from others are left out.
"""

from __future__ import annotations

import ast
import html
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("engine", "server", "tui", "themes", "cli")
PAGE, PICTURE = ROOT / "docs" / "architecture.md", ROOT / "docs" / "architecture.svg"
BEGIN, END = "<!-- packages: written by docs/architecture.py -->\n", "<!-- end -->\n"
WIDE, HIGH, GAP_X, GAP_Y = 132, 34, 18, 46

Graph = dict[str, set[str]]


def modules() -> dict[str, Path]:
    """Dotted name to file, of every product module."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in sorted(files)
    }


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The product modules that a file names in its imports, those for the type checker included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                name = full if full in known else node.module
                if name in known:
                    yield name


def module_graph() -> Graph:
    known = modules()
    return {name: set(imported(path, known)) - {name} for name, path in known.items()}


APART = ("engine.drafters.registry",)
"""A table of names that imports nothing until it is asked for: settings and hub read it, the kinds behind it do not."""


def package_of(module: str) -> str:
    """What a module is drawn as: the first folder below engine, server, tui and cli, or the file that lies there."""
    return module if module in APART else ".".join(module.split(".")[:2])


def package_graph() -> Graph:
    graph: Graph = {}
    for module, needs in module_graph().items():
        here = graph.setdefault(package_of(module), set())
        here |= {package_of(other) for other in needs}
    # A folder's own name stands for its __init__ alone.
    return {
        name: needs - {name, *FOLDERS}
        for name, needs in graph.items()
        if name not in ("engine", "server", "tui", "cli")
    }


def circles(graph: Graph) -> list[list[str]]:
    """Strongly connected components of more than one member (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def reduced(graph: Graph) -> Graph:
    """Without the arrows that follow from others; for a graph without circles."""

    def reach(name: str, memo: dict[str, set[str]]) -> set[str]:
        if name not in memo:
            memo[name] = set().union(*({o} | reach(o, memo) for o in graph.get(name, ())))
        return memo[name]

    memo: dict[str, set[str]] = {}
    return {
        name: {o for o in needs if not any(o in reach(p, memo) for p in needs if p != o)}
        for name, needs in graph.items()
    }


def ranks(graph: Graph) -> dict[str, int]:
    """0 for what imports nothing, otherwise one above the highest that is imported."""
    memo: dict[str, int] = {}

    def rank(name: str) -> int:
        if name not in memo:
            memo[name] = 1 + max((rank(o) for o in graph.get(name, ())), default=-1)
        return memo[name]

    return {name: rank(name) for name in graph}


def says(package: str) -> str:
    """The first sentence of its docstring."""
    known = modules()
    text = ast.get_docstring(ast.parse(known[package].read_text(encoding="utf-8"))) or ""
    first = text.split("\n\n")[0].replace("\n", " ")
    return first.split(". ")[0].rstrip(".") + "."


def svg(graph: Graph) -> str:
    levels = ranks(graph)
    rows = [sorted(n for n in graph if levels[n] == level) for level in range(max(levels.values()), -1, -1)]
    width = max(len(row) for row in rows) * (WIDE + GAP_X) + GAP_X
    at = {
        name: ((width - len(row) * (WIDE + GAP_X) + GAP_X) // 2 + i * (WIDE + GAP_X), GAP_X + y * (HIGH + GAP_Y))
        for y, row in enumerate(rows)
        for i, name in enumerate(row)
    }
    colours = {"engine": "#2563eb", "server": "#b45309", "tui": "#7c3aed", "cli": "#475569", "themes": "#0f766e"}
    height = len(rows) * (HIGH + GAP_Y)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12">',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#94a3b8"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for name, needs in reduced(graph).items():
        x, y = at[name]
        for other in sorted(needs):
            to_x, to_y = at[other]
            lines.append(
                f'<path d="M{x + WIDE // 2} {y + HIGH} C{x + WIDE // 2} {y + HIGH + 30} {to_x + WIDE // 2} {to_y - 30} '
                f'{to_x + WIDE // 2} {to_y}" fill="none" stroke="#94a3b8" marker-end="url(#a)"/>'
            )
    for name, (x, y) in at.items():
        colour = colours[name.split(".")[0]]
        lines.append(
            f'<g><title>{html.escape(says(name))}</title><rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="5" '
            f'fill="#ffffff" stroke="{colour}"/><text x="{x + WIDE // 2}" y="{y + 22}" text-anchor="middle" '
            f'fill="{colour}">{html.escape(name)}</text></g>'
        )
    return "\n".join([*lines, "</svg>", ""])


def table(graph: Graph) -> str:
    levels, direct = ranks(graph), reduced(graph)
    rows = ["| package | what it is | stands on |", "|---|---|---|"]
    for name in sorted(graph, key=lambda n: (n.split(".")[0] != "engine", n.split(".")[0], levels[n], n)):
        rows.append(f"| `{name}` | {says(name)} | {', '.join(f'`{o}`' for o in sorted(direct[name])) or '–'} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    graph = package_graph()
    if found := circles(graph):
        sys.exit(f"Packages import each other in a circle: {found}")
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.split(BEGIN)
    made = head + BEGIN + table(graph) + END + rest.split(END)[1]
    picture = svg(graph)
    if "--check" in sys.argv:
        return int(made != page or not PICTURE.is_file() or PICTURE.read_text(encoding="utf-8") != picture)
    PAGE.write_text(made, encoding="utf-8")
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
