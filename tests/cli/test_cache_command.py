"""`dspark-chat cache`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.main import main
from engine.prefix_cache.cache import PrefixCache
from engine.prefix_cache.disk import DiskTier, default_folder
from tests.engine.prefix_cache.made import snapshot


def test_list_size_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DSPARK_HOME", str(tmp_path))
    assert main(["cache"]) == 0
    assert "Nothing is kept" in capsys.readouterr().out
    cache = PrefixCache(1 << 20, DiskTier(default_folder(), label="toy model"))
    cache.put(range(300), 300, "k", snapshot(range(300)), kind="turn")
    cache.close()
    assert main(["cache", "list"]) == 0
    assert "toy model: 1 prefixes, up to 300 tokens" in capsys.readouterr().out
    assert main(["cache", "size", "--json"]) == 0
    size = json.loads(capsys.readouterr().out)["bytes"]
    assert size == sum(p.stat().st_size for p in default_folder().rglob("*.prefix"))
    assert main(["cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"][0]["bytes"] == size
    assert main(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"freed": size}
    assert not list(default_folder().rglob("*.prefix"))
