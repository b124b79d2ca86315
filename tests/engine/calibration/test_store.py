"""Calibrations on disk: nothing that lies there, and nobody who writes beside us, may cost an entry or a load."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.calibration.record import Calibration, Identity
from engine.calibration.store import KEEP, Store
from engine.calibration.summary import view
from engine.decoding.draft_length.acceptance import Prior, Timings
from engine.decoding.draft_length.cost_model import Costs, Curve

ROOT = Path(__file__).parents[3]


def calibration(target: str = "t1", libraries: str = "mlx 1", at: str = "2026-11-29T10:00:00+00:00") -> Calibration:
    costs = Costs(
        Curve.of({1: 10.0, 2: 11.0, 8: 12.5}),
        Curve.of({1: 1.0, 7: 2.0}),
        0.25,
        Curve.of({1: 0.0001}),
        64,
        {2: Curve.of({1: 15.0, 8: 30.0})},
        {2: Curve.of({1: 1.5, 7: 2.5})},
    )
    return Calibration(
        identity=Identity(target, "d1", "chip x2", libraries),
        target_name="smol",
        drafter_name="dspark",
        costs=costs,
        longest=7,
        measured_at=at,
        prior=Prior(0.6, 0.9, 8.0),
        spread=0.03,
        took_s=4.0,
        busy=0.5,
        refused={"batch": "not asked for"},
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "calibration.json")


def test_round_trip(store: Store):
    assert store.get(calibration().key) is None
    assert store.put(calibration())
    assert store.get(calibration().key) == calibration()
    assert not store.notes


def test_an_entry_from_before_drafts_were_made_together_is_read(store: Store):
    entry = calibration().as_json()
    del entry["draft_batch"]
    older = Calibration.from_json(entry)
    assert older.costs == replace(calibration().costs, drafter_batch={})
    assert older.costs.draft_ms(7, 2) == 2 * older.costs.draft_ms(7)


def test_a_library_upgrade_measures_again_and_keeps_the_old_entry_to_show(store: Store):
    store.put(calibration())
    upgraded = calibration(libraries="mlx 2")
    assert upgraded.key != calibration().key
    assert store.get(upgraded.key) is None
    old = store.other("smol", "dspark")
    assert old == calibration()
    shown = view(old, outdated=True)
    assert shown.stale
    assert "other software" in shown.reason


def test_another_number_of_threads_is_near_and_nothing_else_is(store: Store):
    def of(threads: str, mlx: str = "mlx 0.32.4", at: str = "2026-11-29T10:00:00+00:00", target: str = "t1"):
        return calibration(target, f"{mlx}, mlx-lm 0.32.2, openblas{threads}, Linux", at)

    for one in (of(" 8"), of(" 4"), of(" 4", target="t2"), of(" 2", mlx="mlx 0.33"), of("")):
        store.put(one)
    asked = of(" 2").identity
    assert asked.threads == 2
    assert store.get(asked.key) is None
    assert store.near(asked) == of(" 4"), "the nearest of the same model and software"
    assert store.near(of(" 12").identity) == of(" 8")
    assert store.near(of(" 4", mlx="mlx 1").identity) is None
    assert store.near(of(" 4", target="t2").identity) is None, "it is not near itself"
    assert calibration().identity.threads == 0, "a library that has no threads of ours"
    assert store.near(calibration().identity) is None

    shown = view(of(" 4"), threads=1)
    assert shown.stale and shown.plain, "the numbers are used, and say what they are"
    assert shown.reason == "measured with 4 BLAS threads, and now there is 1; /calibrate measures again"
    assert "with 1 BLAS thread, and now there are 2" in view(of(" 1"), threads=2).reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"entries": 3}',
        '{"entries": {"KEY": null}}',
        '{"entries": {"KEY": {"schema": 1}}}',
        '{"entries": {"KEY": {"schema": 99, "verify": {}}}}',
        "\udcff\udcfe",
    ],
)
def test_o19_foreign_partial_and_broken_files_are_measured_again(store: Store, text: str):
    """Missing fields, another version, broken or empty files: a load works, and one measurement repairs the file."""
    key = calibration().key
    store.path.write_bytes(text.replace("KEY", key).encode("utf-8", "surrogateescape"))
    calls = []
    found = store.get_or(key, lambda: calls.append(1) or calibration())
    assert found == calibration()
    assert store.get_or(key, lambda: calls.append(1) or calibration()) == calibration()
    assert calls == [1]
    assert all("measured again" in note for note in store.notes)


def test_o19_an_entry_under_a_key_that_is_not_its_own_is_not_believed(store: Store):
    store.put(calibration())
    whole = json.loads(store.path.read_text())
    entry = whole["entries"].pop(calibration().key)
    whole["entries"]["0" * 32] = entry
    store.path.write_text(json.dumps(whole))
    assert store.get("0" * 32) is None
    assert store.newest() == {}


def test_o19_numbers_that_cannot_be_are_refused(store: Store):
    for field, value in {"verify": {"1": -3}, "longest": "many", "measured_at": None, "verify ": {}}.items():
        entry = calibration().as_json()
        entry[field.strip()] = value
        if value is not None:
            with pytest.raises(ValueError, match="not a calibration entry"):
                Calibration.from_json(entry)


def test_a_folder_that_cannot_be_written_costs_only_the_memory(tmp_path: Path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    store = Store(blocked / "calibration.json")
    assert store.get_or(calibration().key, calibration) == calibration()
    assert len(store.notes) == 1
    assert "could not be kept" in store.notes[0]


def test_old_entries_go_first(store: Store):
    for i in range(KEEP + 5):
        store.put(calibration(f"t{i}", at=f"2026-11-{1 + i // 24:02}T{i % 24:02}:00:00+00:00"))
    entries = json.loads(store.path.read_text())["entries"]
    assert len(entries) == KEEP
    assert calibration("t0").key not in entries
    assert calibration(f"t{KEEP + 4}").key in entries


WRITER = """
    import sys
    sys.path[:0] = [{root!r}, {here!r}]
    from pathlib import Path
    from test_store import calibration
    from engine.calibration.store import Store
    store = Store(Path({path!r}))
    for i in range({count}):
        store.put(calibration(f"{name}-{{i}}"))
        print(i, flush=True)
"""


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    code = textwrap.dedent(WRITER).format(
        root=str(ROOT), here=str(Path(__file__).parent), path=str(path), name=name, count=count
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_two_processes_lose_no_entry(store: Store):
    both = [writer(store.path, name, 12) for name in ("a", "b")]
    assert [p.wait(60) for p in both] == [0, 0]
    for name in ("a", "b"):
        for i in range(12):
            assert store.get(calibration(f"{name}-{i}").key) is not None
    for process in both:
        assert process.stdout is not None
        process.stdout.close()


def test_a_killed_writer_leaves_a_whole_file_and_no_lock(store: Store, monkeypatch: pytest.MonkeyPatch):
    store.put(calibration("before"))
    process = writer(store.path, "killed", 100_000)
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    process.stdout.close()
    json.loads(store.path.read_text())
    monkeypatch.setattr(
        "engine.calibration.store._wait", lambda file, _: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    )
    assert store.put(calibration("after")), "nobody has to be waited for"
    for target in ("after", "killed-0"):
        assert store.get(calibration(target).key) is not None


def test_of_two_that_lack_an_entry_one_measures(store: Store):
    """The second waits for the first and takes its result."""
    import threading

    calls: list[str] = []

    def slow(name: str):
        def measure() -> Calibration:
            calls.append(name)
            time.sleep(0.3)
            return calibration()

        return measure

    other = Store(store.path)
    threads = [
        threading.Thread(target=s.get_or, args=(calibration().key, slow(n))) for s, n in ((store, "1"), (other, "2"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_patience_with_a_process_that_never_ends(store: Store):
    with store._lock("measuring"):
        assert Store(store.path).get_or(calibration().key, calibration, patience=0.2) == calibration()


def test_view_numbers_come_from_the_curves():
    shown = view(calibration())
    assert shown.measured
    assert not shown.stale
    assert shown.curve == ((1, 10.0), (2, 11.0), (8, 12.5))
    assert shown.plain == pytest.approx(100.0)
    assert shown.cap >= 1
    assert shown.predicted > shown.plain
    assert shown.speedup == pytest.approx(shown.predicted / shown.plain)
    assert shown.date.startswith("2026-11-")
    assert view(None).measured is False
    assert "busy" in view(replace(calibration(), busy=3.0)).reason


def test_live_rounds_that_disagree_for_long_make_it_stale():
    timings = Timings()
    for _ in range(150):
        timings.observe(0, 15.0, 10.0)
    assert not view(calibration(), timings).stale
    for _ in range(150):
        timings.observe(0, 15.0, 10.0)
    shown = view(calibration(), timings)
    assert shown.stale
    assert "+50 %" in shown.reason or "+49 %" in shown.reason
    for _ in range(400):
        timings.observe(0, 10.0, 10.0)
    assert not view(calibration(), timings).stale
