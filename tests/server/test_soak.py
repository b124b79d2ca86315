"""The short form of benchmarks/soak.py: forty requests of random shape, a quarter of them given up."""

from __future__ import annotations

import os

import pytest

from benchmarks.soak import soak


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_forty_random_requests_leave_nothing_behind() -> None:
    report = soak(40, seed=2)
    assert sum(report.ended.values()) == 40
    assert report.ended.keys() <= {"200", "400", "left"}
    assert report.ended["200"] > 15
    assert report.ended["left"] > 1
    assert set(report.gauges.values()) == {0}
    assert report.cache_bytes <= report.cache_budget
    assert report.growth_mb < 32
