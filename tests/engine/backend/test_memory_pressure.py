"""Memory pressure is answered at the edge, and again when it lasts."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.backend.memory_pressure import REARM_S, Level, PressureGuard, level, linux_level


def test_edges_and_rearming() -> None:
    asked: list[str] = []
    now, seen = [0.0], ["ok"]
    guard = PressureGuard(asked.append, lambda: seen[0], lambda: now[0])  # pyright: ignore[reportArgumentType]
    story: list[tuple[float, Level]] = [
        (3, "ok"),
        (6, "warn"),
        (9, "warn"),
        (12, "critical"),
        (15, "warn"),
        (18, "critical"),
        (21, "ok"),
        (24, "warn"),
        (24 + REARM_S, "warn"),
    ]
    for at, what in story:
        now[0], seen[0] = at, what
        guard.check()
    assert asked == ["warn", "critical", "critical", "warn", "warn"]
    assert guard.sheds == 5


@pytest.mark.parametrize(("available", "want"), [(900, "ok"), (70, "warn"), (20, "critical")])
def test_linux(tmp_path: Path, available: int, want: Level) -> None:
    file = tmp_path / "meminfo"
    file.write_text(f"MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n")
    assert linux_level(file) == want
    assert linux_level(tmp_path / "none") == "ok"
    file.write_text("nonsense")
    assert linux_level(file) == "ok"


def test_this_machine_says_something() -> None:
    assert level() in ("ok", "warn", "critical")
