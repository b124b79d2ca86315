"""One sitting of a small run, for the tests that end it: `sitting.py OUT POINT` kills itself without warning at POINT.

POINT is `stage:N`, the Nth sign of progress of that stage, or the name of a file, just before it takes its place.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from engine import backend as backend
from engine.engine import Options
from engine.load import open_engine
from engine.training.data import conversations, features
from engine.training.run import Run
from engine.training.settings import Settings

MODEL = Path(__file__).parents[2] / "golden" / "targets" / "tiny-qwen3"
SETTINGS = Settings(
    "tiny", conversations=10, max_tokens=24, draft_vocab=64, rank=32, steps=6, sequences=2, anchors=8, held_out=2,
    save_every=2, evaluate_every=3, intermediate=64, bits=16,
)  # fmt: skip


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Fate:
    """A Watcher, and a stand-in for os.replace, that ends the process at one point."""

    def __init__(self, point: str) -> None:
        self._stage, _, count = point.partition(":")
        self._left = int(count or 0)
        self._now = ""
        self._replace = os.replace

    def stage(self, name: str, detail: str) -> None:
        self._now = name

    def progress(self, done: int, total: int) -> None:
        if self._now == self._stage:
            self._left -= 1
            if self._left == 0:
                die()

    def report(self, report: object) -> None: ...

    def replace(self, source: Path, target: Path) -> None:
        if Path(target).name == self._stage and Path(target).parent.name != "trial":
            die()
        self._replace(source, target)


def small() -> None:
    """Few words and small groups, so that every stage has a middle."""
    conversations.MAX_QUESTION, features.GROUP = 12, 4


def main(out: Path, point: str) -> None:
    small()
    fate = Fate(point)
    os.replace = fate.replace
    with open_engine(MODEL, name="tiny", options=Options(drafter="none", max_batch=4)) as engine:
        Run(out, SETTINGS, engine, fate).all()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
