"""`dspark-chat train`: a drafter for a model of yours, made on this machine in stages that may be interrupted.

Prints what it will take before it starts, and a plot while it trains. Everything that it does is in `run`.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from engine import backend as backend  # before MLX, see its docstring
from engine.errors import Cancelled, NoSpace, UsageError, human_bytes
from engine.training.settings import KINDS, Settings, duration

_BATCH = 32
"""Conversations written together, as far as a quarter of the memory holds them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    default = Settings("")
    add = parser.add_argument
    add("--model", default="default", help="card, owner/name or path of the model that the drafter is for")
    add("--out", required=True, type=Path, help="folder of the run; give it again to go on with it")
    add("--kind", choices=KINDS, default=default.kind)
    add("--budget", default="2h", help="training time, such as 45m or 2h (the other stages come on top)")
    add("--steps", type=int, default=0, help="a number of steps in place of a budget")
    add("--conversations", type=int, default=None, help="how many to learn from (default 400, or all of --data)")
    add("--data", default="", help="conversations that exist: .jsonl with prompt_ids and response_ids")
    add("--prompts", default="", help="questions to ask the model, one a line (default: it writes its own)")
    add("--max-tokens", type=int, default=default.max_tokens, help="longest answer")
    add("--learn-questions", action="store_true", help="the model wrote the questions of --data: learn from them, too")
    add("--from", dest="parent", default="", help="folder of an earlier run whose drafter this one starts from")
    add("--taps", default="", help="target layers to read, such as 1,8,14,21,28")
    add("--layers", type=int, default=default.layers)
    add("--block", type=int, default=default.block, help="drafts a round")
    add("--rank", type=int, default=default.rank, help="of the Markov head")
    add("--draft-vocab", type=int, default=default.draft_vocab, help="most frequent tokens kept; 0 keeps all")
    add("--rate", type=float, default=default.rate, help="peak learning rate (default: by width)")
    add("--weight-decay", type=float, default=default.weight_decay, help="pulls every weight towards zero")
    add("--noise", type=float, default=default.noise, help="on what is read of the model, whose own size is 1")
    add("--sequences", type=int, default=0, help="conversations a step, with 256 anchors in all (default: by width)")
    add("--seed", type=int, default=default.seed)
    add(
        "--bits",
        type=int,
        choices=(4, 6, 8, 16),
        default=default.bits,
        help="of the exported matrices; 16 suits every program",
    )
    add("--yes", action="store_true", help="start without asking")
    add("--dry-run", action="store_true", help="only say what it would take")


_LEAST = {
    "--block": 2, "--layers": 1, "--rank": 0, "--draft-vocab": 0, "--steps": 0, "--conversations": 1, "--max-tokens": 1,
    "--rate": 0.0, "--weight-decay": 0.0, "--noise": 0.0, "--sequences": 0,
}  # fmt: skip


def _taps(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(x) for x in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(f"'{text}' is no list of layers; write --taps 1,8,14, say.") from None
    if list(found) != sorted(set(found)) or any(x < 0 for x in found):
        raise UsageError(f"--taps {text} must rise from 0 upwards without repeats; write --taps 1,8,14, say.")
    return found


def settings_of(args: argparse.Namespace) -> Settings:
    """Raises UsageError for values that make no sense."""
    for option, least in _LEAST.items():
        value = getattr(args, option[2:].replace("-", "_"))
        if value is not None and not value >= least:
            raise UsageError(f"{option} {value} is too small; the least is {least}.")
    wanted = args.conversations
    return Settings(
        model=args.model,
        kind=args.kind,
        conversations=wanted if wanted is not None else (0 if args.data else 400),
        data=args.data,
        prompts=args.prompts,
        max_tokens=args.max_tokens,
        taps=_taps(args.taps),
        layers=args.layers,
        block=args.block,
        rank=args.rank,
        draft_vocab=args.draft_vocab,
        rate=args.rate,
        weight_decay=args.weight_decay,
        noise=args.noise,
        budget=duration(args.budget),
        steps=args.steps,
        sequences=args.sequences,
        seed=args.seed,
        bits=args.bits,
        parent=args.parent,
        learn_questions=args.learn_questions,
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from engine import hub
    from engine.engine import Options
    from engine.load import open_engine
    from engine.training.run import Run
    from engine.training.settings import keep

    settings = settings_of(args)
    _need_files(settings)
    found = hub.ensure(settings.model)
    assert found.path is not None
    with _disk(args.out):
        settings = keep(args.out, settings)
    backend.keep_memory()
    screen = Screen(sys.stderr)
    options = Options(drafter="none", max_batch=_BATCH, state_bytes=backend.memory_bytes() // 4)
    with open_engine(found.path, name=settings.model, options=options) as engine:
        made = Run(args.out, settings, engine, screen)
        _explain(made, sys.stderr)
        if args.dry_run or not (args.yes or _agreed()):
            return 0
        try:
            with _disk(args.out):
                folder = made.all()
        except KeyboardInterrupt:
            raise Cancelled(f"Stopped. The same command goes on from here; {args.out} holds everything.") from None
    screen.close()
    _conclude(made, folder, sys.stderr)
    print(folder)
    return 0


def _need_files(settings: Settings) -> None:
    """What the run reads must be there before anything is loaded or written."""
    wanted = {"--data": settings.data, "--prompts": settings.prompts}
    if settings.parent:
        wanted["--from"] = f"{settings.parent}/training/best.safetensors"
    for option, name in wanted.items():
        if name and not Path(name).expanduser().is_file():
            what = "no trained run" if option == "--from" else "no file"
            raise UsageError(f"There is {what} at {settings.parent if option == '--from' else name} ({option}).")


@contextmanager
def _disk(out: Path) -> Generator[None]:
    """Trouble with the folder of the run, in words."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise NoSpace("The disk is full. Free some space; the same command then goes on from here.") from error
        raise UsageError(f"{out} cannot be used ({error.strerror}); choose another folder with --out.") from error


def _conclude(made: object, folder: Path, out: TextIO) -> None:
    """What came of it, and how to use it."""
    from engine.training.run import Run

    assert isinstance(made, Run)
    if made.measured is not None:
        plain, drafted = made.measured
        pace = drafted.speed / max(plain.speed, 1e-9)
        out.write(
            f"On held-out prompts {drafted.committed:.2f} tokens a round, {pace:.2f} times the plain speed with every "
            f"draft taken.\nUse it with: dspark-chat --model {made.settings.model} --drafter {folder}\n"
        )


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("Nobody can be asked here; add --yes to start.")
    return input("Start? [Y/n] ").strip().lower() in ("", "y", "yes")


def _explain(made: object, out: TextIO) -> None:
    from engine.training.run import Run
    from engine.training.terminal_plot import clock

    assert isinstance(made, Run)
    found = made.estimate()
    lines = [
        f"Conversations  {found.conversations} to write, about {clock(found.writing)}",
        f"Features       {found.tokens} tokens, {human_bytes(found.feature_bytes)}, about {clock(found.reading)}",
        f"Training       {clock(found.training) if not made.settings.steps else f'{made.settings.steps} steps'}",
        f"In all         about {clock(found.seconds)} on this machine when it is otherwise idle",
    ]
    out.write("\n".join(lines) + "\n")
    have, free = _bytes(made.folder / "features"), shutil.disk_usage(made.folder).free
    if found.feature_bytes - have > free:
        raise NoSpace(
            f"The features take {human_bytes(found.feature_bytes)} and {human_bytes(free + have)} are free; give fewer "
            "--conversations, fewer --taps, or another --out."
        )


def _bytes(folder: Path) -> int:
    """On the disk, of the files in a folder that may not exist."""
    return sum(x.stat().st_blocks * 512 for x in folder.glob("*.f16")) if os.name == "posix" else 0


class Screen:
    """A Watcher that draws on a terminal, and writes plain lines elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._live = out.isatty()
        self._losses: list[float] = []
        self._measured: list[float] = []
        self._drawn = 0
        self._began = time.monotonic()
        self._first = -1
        self._said = 0.0

    def stage(self, name: str, detail: str) -> None:
        self._erase()
        self._out.write(f"{name}: {detail}\n" if detail else f"{name}\n")
        self._began, self._first = time.monotonic(), -1

    def progress(self, done: int, total: int) -> None:
        from engine.training.terminal_plot import bar, clock

        self._first = done if self._first < 0 else self._first
        share = done / max(1, total)
        fresh = done - self._first
        spent = time.monotonic() - self._began
        left = clock(spent / fresh * (total - done)) + " left" if fresh > 0 else ""
        self._draw([f"  {bar(share)} {done} of {total}  {left}"])

    def report(self, report: object) -> None:
        from engine.training.loop.train import Report
        from engine.training.terminal_plot import bar, clock, curve

        assert isinstance(report, Report)
        self._losses.append(report.loss)
        if report.held_out is not None:
            self._measured.append(report.held_out)
        left = report.seconds / max(report.progress, 1e-6) * (1 - report.progress)
        line = f"  {bar(report.progress)} step {report.step}  loss {report.loss:.3f}  {clock(left)} left"
        held = f"  held-out {self._measured[-1]:.3f} tokens a round, best {report.best:.3f}" if self._measured else ""
        width = max(20, min(72, shutil.get_terminal_size().columns - 12))
        plots = [*curve(self._losses, width, 5, title="loss"), *curve(self._measured, width, 4, title="tokens a round")]
        self._draw([line, held, *plots] if self._live else [line + held])

    def close(self) -> None:
        self._out.flush()

    def _draw(self, lines: list[str]) -> None:
        if self._live:
            self._erase()
            # A line that wraps would be two to take back.
            columns = shutil.get_terminal_size().columns - 1
            self._out.write("\n".join(line[:columns] for line in lines) + "\n")
            self._drawn = len(lines)
        elif time.monotonic() - self._said > 10:
            self._out.write(lines[0] + "\n")
            self._said = time.monotonic()
        self._out.flush()

    def _erase(self) -> None:
        if self._drawn:
            self._out.write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0
