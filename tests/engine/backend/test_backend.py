"""What the engine asks of the device, with devices that are not here."""

from __future__ import annotations

import os
import sys
from typing import Any

import mlx.core as mx
import pytest

from engine import backend

GB = 2**30


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine with Metal and 18 GB for it; the limits that were set."""
    limits: list[int] = []
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr(backend, "is_cpu", lambda: False)
    monkeypatch.setattr(
        mx, "device_info", lambda: {"max_recommended_working_set_size": 18 * GB, "memory_size": 24 * GB}
    )
    monkeypatch.setattr(mx, "set_wired_limit", limits.append)
    return limits


def test_memory_is_the_devices_own(mac: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend.memory_bytes() == 18 * GB
    cards: list[tuple[dict[str, Any], int]] = [({"total_memory": 8 * GB}, 8 * GB), ({"device_name": "?"}, 0)]
    for info, expected in cards:
        monkeypatch.setattr(mx, "device_info", lambda info=info: info)
        assert backend.memory_bytes() == expected
    monkeypatch.undo()
    assert backend.memory_bytes() > GB, "the machine's"


def test_weights_are_pinned_with_a_margin_and_never_beyond_what_the_device_may_use(mac: list[int]) -> None:
    assert backend.pin(5 * GB) == "Pinned up to 7.5 GB of 19.3 GB."
    assert backend.pin(17 * GB) == "Pinned up to 19.3 GB of 19.3 GB."
    assert mac == [7 * GB, 18 * GB]


def test_elsewhere_pinning_says_that_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx, "set_wired_limit", lambda limit: pytest.fail("set"))
    assert backend.pin(GB) == "Weights are pinned on Apple Silicon only; nothing was done."


def test_a_model_that_does_not_fit_a_mac_names_the_switch(mac: list[int]) -> None:
    from engine.errors import MemoryShort
    from engine.targets.memory_estimate import Estimate, StateCost, fit

    need = Estimate(weights=20 * GB, state=StateCost(1000, 0), scratch=0, context=4096)
    with pytest.raises(MemoryShort, match=r"more quantised one; `sudo sysctl iogpu\.wired_limit_mb=N` lets macOS"):
        fit(need)


@pytest.mark.skipif(sys.platform != "linux" or not backend.is_cpu(), reason="a word to Linux about MLX's CPU backend")
def test_what_computes_for_the_model_thread_does_not_take_its_core():
    from engine.decoding.scheduler import Scheduler

    def policies() -> tuple[int, list[int]]:
        mx.eval(mx.ones((2,)) + 1)
        threads = [int(name) for name in os.listdir("/proc/self/task")]
        return os.sched_getscheduler(0), [os.sched_getscheduler(thread) for thread in threads]

    scheduler = Scheduler()
    try:
        mine, all_ = scheduler.run_exclusive(policies).result()
    finally:
        scheduler.close()
    assert mine == os.SCHED_OTHER, "the thread that answers goes before others' work as it did"
    assert all_.count(os.SCHED_BATCH) >= 1
