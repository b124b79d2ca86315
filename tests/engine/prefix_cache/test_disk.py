"""Prefixes that outlive the process: restart, kill, damage, limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from engine.drafters.prompt_lookup import LookupSnapshot
from engine.prefix_cache.cache import PrefixCache
from engine.prefix_cache.disk import DiskTier
from engine.prefix_cache.disk_file import SUFFIX, sweep
from engine.prefix_cache.serialization import Opened, encode, pack, unpack
from tests.engine.prefix_cache.made import check, snapshot

KINDS = [("append",), ("append", "recurrent"), ("recurrent",), ("append", "window", "recurrent")]
TURNS = [list(range(10)), list(range(16)), [*range(12), 90, 91, 92]]


def opened(folder: Path, limit: int = 1 << 30, budget: int = 1 << 22) -> PrefixCache:
    return PrefixCache(budget, DiskTier(folder, limit, least=1, label="toy"))


def store(cache: PrefixCache, turns: Sequence[Sequence[int]], kinds: Sequence[str], key: str = "k") -> None:
    for tokens in turns:
        assert cache.put(tokens, len(tokens), key, snapshot(tokens, kinds), kind="turn")
    assert cache.disk is not None
    cache.disk.close()


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_restart(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    store(opened(tmp_path), TURNS, kinds)
    cache = opened(tmp_path)
    for tokens in TURNS:
        found = cache.match([*tokens, 99], "k")
        assert found is not None
        assert found.length == len(tokens)
        check(found.snapshot, tokens, kinds)
    assert cache.stats().hits["disk"] >= 1
    found = cache.match([*TURNS[0], 99], "k")
    assert found is not None
    assert found.kind == "turn"
    assert cache.match([*TURNS[0], 99], "other model") is None
    # Nothing is written twice.
    files = set(tmp_path.glob(f"*/*{SUFFIX}"))
    store(cache, TURNS, kinds)
    assert set(tmp_path.glob(f"*/*{SUFFIX}")) == files


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_memory_can_be_given_up_when_a_file_has_it(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    cache = opened(tmp_path)
    store(cache, TURNS, kinds)
    assert cache.shed("critical") > 0
    assert cache.nbytes == 0
    for tokens in TURNS:
        found = cache.match([*tokens, 99], "k")
        assert found is not None
        assert found.length == len(tokens)
        check(found.snapshot, tokens, kinds)
    # And a branch inside what was read back.
    if kinds == ("append",):
        cache.shed("critical")
        found = cache.match([*range(13), 5], "k")
        assert found is not None
        assert (found.length, found.kind) == (13, "disk")
        check(found.snapshot, range(13), kinds)


def test_a_small_budget_reads_what_fits(tmp_path: Path) -> None:
    store(opened(tmp_path), [list(range(100))], ("append",))
    cache = opened(tmp_path, budget=400)
    assert cache.match([*range(100), 7], "k") is None
    assert cache.nbytes <= 400


def test_files_of_other_versions_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(opened(tmp_path), TURNS, ("append",))
    monkeypatch.setattr("engine.prefix_cache.disk.MADE_WITH", "mlx 0.1")
    assert opened(tmp_path).match([*TURNS[0], 99], "k") is None
    monkeypatch.undo()
    assert opened(tmp_path).match([*TURNS[0], 99], "k") is not None


def test_files_of_an_older_format_are_removed_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("engine.prefix_cache.disk.FORMAT", 1)
    store(opened(tmp_path), TURNS, ("append",))
    files = len(list(tmp_path.glob(f"*/*{SUFFIX}")))
    assert files
    monkeypatch.undo()
    assert opened(tmp_path).match([*TURNS[0], 99], "k") is None
    assert not list(tmp_path.glob(f"*/*{SUFFIX}"))
    assert opened(tmp_path).match([*TURNS[0], 99], "k") is None
    assert [r.getMessage() for r in caplog.records] == [
        f"{files} files of an older version of the prefix cache were removed from {tmp_path}"
    ]
    # Those of a newer one belong to somebody else.
    monkeypatch.setattr("engine.prefix_cache.disk.FORMAT", 9)
    store(opened(tmp_path), TURNS, ("append",))
    monkeypatch.undo()
    assert opened(tmp_path).match([*TURNS[0], 99], "k") is None
    assert len(list(tmp_path.glob(f"*/*{SUFFIX}"))) == files


def test_the_measured_rate_comes_back(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    cache.learn("k", 100, 50.0)
    store(cache, TURNS, ("append",))
    assert opened(tmp_path).saved_ms("k", 10) == pytest.approx(5.0)


def test_drafter_contexts_come_back(tmp_path: Path) -> None:
    cache, tokens = opened(tmp_path), list(range(40))
    held = {"lookup": LookupSnapshot(tuple(tokens))}
    cache.put(tokens, 40, "k", snapshot(tokens), held, "turn")
    cache.close()
    found = opened(tmp_path).match([*tokens, 1], "k", "lookup")
    assert found is not None
    assert found.context == held["lookup"]


def test_o17_every_size_and_format_round_trips(tmp_path: Path) -> None:
    """O17: parts of width zero and one."""
    arrays = {
        f"{dtype}.{n}": mx.ones((2, n, 3)).astype(dtype)
        for dtype in (mx.float32, mx.float16, mx.bfloat16, mx.int32, mx.uint8, mx.bool_)
        for n in (0, 1, 5)
    }
    path = tmp_path / f"x{SUFFIX}"
    encode({"a": 1}, arrays).write(path)
    file = Opened.at(path)
    assert file.meta == {"a": 1}
    for name, x in arrays.items():
        back = file.read(name)
        assert (back.dtype, back.shape) == (x.dtype, x.shape)
        assert mx.array_equal(back, x).item()
    loaded = mx.load(str(path), format="safetensors")
    assert isinstance(loaded, dict)
    assert set(loaded) == set(arrays)


def test_files_name_no_code(tmp_path: Path) -> None:
    arrays: dict[str, mx.array] = {}
    value = (1, None, "x", (mx.ones(2), LookupSnapshot((4, 5))))
    packed = pack(value, "v", arrays)
    back = unpack(packed, arrays)
    assert back[0:3] == (1, None, "x")
    assert back[3][1] == LookupSnapshot((4, 5))
    for name in (
        "os:system",
        "engine.drafters.prompt_lookup:Lookup",
        "engine.drafters.prompt_lookup:nothing",
        "engine.types:Request",
    ):
        with pytest.raises(ValueError, match=r"not read|no data class"):
            unpack({"class": name, "fields": {}}, arrays)
    with pytest.raises(ValueError, match="cannot be stored"):
        pack({1, 2}, "v", arrays)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "gone", "noise"])
def test_damage_is_a_miss(tmp_path: Path, damage: str) -> None:
    store(opened(tmp_path), [list(range(30))], ("append",))
    cache = opened(tmp_path)
    if damage in ("flipped", "gone"):
        cache.match([1, 2], "k")  # The folder was read before the damage happened.
    (path,) = tmp_path.glob(f"*/*{SUFFIX}")
    data = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        data[-3] ^= 0xFF
        path.write_bytes({"cut": data[:-9], "flipped": data, "empty": b"", "noise": os.urandom(200)}[damage])
    assert cache.match([*range(30), 1], "k") is None
    # The cache goes on: the same prefix can be kept and found again.
    store(cache, [list(range(30))], ("append",))
    found = cache.match([*range(30), 1], "k")
    assert found is not None
    check(found.snapshot, range(30), ("append",))
    again = opened(tmp_path).match([*range(30), 1], "k")
    assert again is not None


def test_size_limit_drops_the_least_recently_used_leaves(tmp_path: Path) -> None:
    cache = opened(tmp_path, limit=60_000)
    base = list(range(100))
    for n in range(30):
        store(cache, [base, [*base, 1000 + n, *range(100)]], ("append",))
        stats = cache.stats()
        assert 0 < stats.disk_bytes <= 60_000
    assert sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file()) <= 60_000
    found = opened(tmp_path).match([*base, 5000], "k")
    assert found is not None
    assert found.length == 100


def test_room_for_a_file_is_not_made_by_what_it_follows_on(tmp_path: Path) -> None:
    """The head is the file that was used longest ago when the turn after it needs room."""
    head = list(range(2000))
    cache = opened(tmp_path)
    store(cache, [head, [7, *range(2000)]], ("append",))
    limit = cache.stats().disk_bytes + 5000
    cache = opened(tmp_path, limit=limit)
    store(cache, [[*head, *range(500, 1000)]], ("append",))
    assert cache.stats().disk_bytes <= limit
    found = opened(tmp_path).match([*head, *range(500, 1000), 1], "k")
    assert found is not None
    assert found.length == 2500
    assert opened(tmp_path).match([7, *range(2000), 1], "k") is None


def test_everything_can_be_deleted_also_what_waits_to_be_written(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    store(cache, TURNS, KINDS[0])
    held = [list(range(100 + i, 112 + i)) for i in range(20)]
    for tokens in held:
        assert cache.put(tokens, len(tokens), "k", snapshot(tokens, KINDS[0]), kind="turn")
    cache.clear(disk=True)
    assert cache.disk is not None
    cache.disk.close()
    assert not list(tmp_path.glob(f"*/*{SUFFIX}"))
    assert (cache.stats().entries, cache.stats().disk_entries) == (0, 0)
    assert cache.match([*TURNS[0], 99], "k") is None
    store(cache, TURNS, KINDS[0])
    assert opened(tmp_path).match([*TURNS[1], 99], "k") is not None


def test_what_is_in_memory_can_be_forgotten_alone(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    store(cache, TURNS, KINDS[0])
    cache.clear()
    found = cache.match([*TURNS[1], 99], "k")
    assert found is not None
    assert found.kind == "disk"


def test_write_errors_are_counted_and_said(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = opened(blocked)
    store(cache, [list(range(30))], ("append",))
    stats = cache.stats()
    assert stats.disk_errors == 1
    assert "could not be written" in stats.disk_error
    assert cache.match([*range(30), 1], "k") is not None


def test_two_processes_share_a_folder(tmp_path: Path) -> None:
    one, two = opened(tmp_path), opened(tmp_path)
    for cache in (one, two):
        store(cache, TURNS, ("append", "recurrent"))
    one.disk.clear()  # pyright: ignore[reportOptionalMemberAccess]
    two.shed("critical")
    assert two.match([*TURNS[0], 99], "k") is None
    store(two, TURNS, ("append", "recurrent"))
    assert two.match([*TURNS[0], 99], "k") is not None


def test_files_are_private(tmp_path: Path) -> None:
    store(opened(tmp_path / "new"), [list(range(30))], ("append",))
    (path,) = (tmp_path / "new").glob(f"*/*{SUFFIX}")
    assert path.stat().st_mode & 0o077 == 0


WRITER = """
import sys
from engine import backend
from pathlib import Path
from engine.prefix_cache.cache import PrefixCache
from engine.prefix_cache.disk import DiskTier
from tests.engine.prefix_cache.made import snapshot
cache = PrefixCache(1 << 30, DiskTier(Path(sys.argv[1]), least=1))
n = 0
while True:
    tokens = [n % 977, n // 977, *range(20000)]
    cache.put(tokens, len(tokens), "k", snapshot(tokens), kind="turn")
    n += 1
    print(n, flush=True)
"""


def test_kill_while_writing(tmp_path: Path) -> None:
    for wait in (0.0, 0.03):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout:
            while int(process.stdout.readline()) < 4:
                pass
            time.sleep(wait)
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        cache = opened(tmp_path, budget=1 << 30)
        cache.match([0, 0, 5], "k")
        assert not list(tmp_path.rglob("*.tmp"))
        whole = 0
        for n in range(8):
            tokens = [n % 977, n // 977, *range(20000)]
            found = cache.match([*tokens, 1], "k")
            if found is not None and found.length > 1000:
                check(found.snapshot, tokens[: found.length], ("append",))
                whole += 1
        assert whole > 0


def test_sweep_leaves_running_writers_alone(tmp_path: Path) -> None:
    folder = tmp_path / "key"
    folder.mkdir()
    mine, gone = (folder / f"a{SUFFIX}.{pid}.tmp" for pid in (os.getppid(), 2**22 + 5))
    mine.write_text("x")
    gone.write_text("x")
    sweep(tmp_path)
    assert mine.exists()
    assert not gone.exists()


def test_numpy_is_zero_copy() -> None:
    """The writer thread must not need MLX: what it gets are views of evaluated buffers."""
    x = mx.ones((4, 4))
    content = encode({}, {"x": x})
    assert bytes(content.parts[0]) == np.ones((4, 4), dtype=np.float32).tobytes()
