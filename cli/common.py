"""What the measuring commands share: opening an engine for them, their prompts, and plain tables."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cli.parser import add_settings, read_settings
from cli.progress import Reporter
from engine import backend as backend  # before MLX, see its docstring: these commands measure
from engine.chat.prompt import build_request
from engine.chat.terminal_safe import one_line
from engine.config import Config
from engine.errors import UsageError

PROMPTS = (
    "Explain in a few sentences why the sky is blue during the day and red in the evening.",
    "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
    "Repeat this list exactly three times: apples, oranges, bananas, cherries, grapes, lemons, melons, peaches.",
)
"""Used when no prompt is given: prose, code, and text that repeats itself."""


def add_common(parser: argparse.ArgumentParser) -> None:
    """Model settings, and the shape of the output."""
    parser.add_argument("--json", action="store_true", help="as one object")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    add_settings(parser, "model", "drafter", "cap", "folders", "trust_remote_code")


def add_prompts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="*", help="what to ask; built-in prompts when there is none")
    parser.add_argument("--file", metavar="FILE", help="JSON lines with a 'turns' list or a 'prompt' each")
    parser.add_argument("--limit", type=int, default=8, metavar="N", help="at most N prompts of the file (8)")


def read_prompts(args: argparse.Namespace) -> list[str]:
    """The user's prompts.

    Raises:
        UsageError: a file that cannot be read, or holds none.
    """
    if not args.file:
        return [" ".join(args.prompt)] if args.prompt else list(PROMPTS)
    found: list[str] = []
    try:
        for line in Path(args.file).read_text("utf-8").splitlines()[: max(1, args.limit)]:
            entry = json.loads(line)
            found.append(str(entry["turns"][0] if "turns" in entry else entry["prompt"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UsageError(f"{args.file} is not a file of prompts ({error}).") from error
    if not found:
        raise UsageError(f"{args.file} holds no prompt.")
    return found


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[tuple[Any, Meter]]:
    """The engine under these settings, closed at the end."""
    from engine.load import load_session

    config = read_settings(args)
    reporter = Reporter(sys.stderr, quiet=args.quiet)
    engine = load_session(config, reporter.progress)
    reporter.done()
    meter = Meter(quiet=args.quiet or not sys.stderr.isatty())
    try:
        yield engine, meter
    finally:
        meter.done()
        engine.close()


def encode(engine: Any, prompts: Sequence[str]) -> list[list[int]]:
    """Under the chat template, as no setting changes it: measurements are to be compared."""
    return [list(build_request(engine, [{"role": "user", "content": p}], Config()).request.prompt) for p in prompts]


class Meter:
    """One line of progress on a terminal, rewritten."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._shown = False

    def __call__(self, what: str, done: float) -> None:
        if not self._quiet:
            sys.stderr.write(f"\r\x1b[2K{100 * done:3.0f} %  {one_line(what)}")
            sys.stderr.flush()
            self._shown = True

    def done(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = False


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Aligned columns: the first to the left, the others to the right."""
    cells = [[one_line(str(c)) for c in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)
