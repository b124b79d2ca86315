"""Tables instead of `mx.fast.rope`: equal to the last bit, on every kind of rope that they serve."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models.rope_utils import initialize_rope

from engine import rotary
from engine.backend import is_cpu

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 256}


class Holder(nn.Module):
    def __init__(self, *ropes: nn.Module) -> None:
        super().__init__()
        self.ropes = list(ropes)


@pytest.fixture(autouse=True)
def _on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotary, "tabled", lambda: True)


@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize("width", [32, 48])
@pytest.mark.parametrize("scaling", [None, LLAMA3])
@pytest.mark.skipif(not is_cpu(), reason="elsewhere a kernel of MLX's serves, and tables never do")
def test_equal_to_the_last_bit(traditional: bool, width: int, scaling: dict[str, object] | None):
    def make() -> nn.Module:
        return initialize_rope(32, 10000.0, traditional, scaling, 4096)

    reference, model = make(), Holder(make(), make())
    rotary.share(model)
    for offset, rows in [(0, 1), (0, 7), (7, 1), (7, 3), (1999, 5), (7, 3)]:
        for layer in model.ropes:
            x = mx.random.normal((2, 3, rows, width))
            assert mx.array_equal(layer(x, offset), reference(x, offset)), (offset, rows)


def test_layers_share_and_classes_stay():
    model = Holder(nn.RoPE(16), nn.RoPE(16), nn.RoPE(16, base=500.0))
    before = nn.RoPE.__call__
    rotary.share(model)
    a, b, c = (layer.__dict__["_dspark_tables"] for layer in model.ropes)
    assert a is b
    assert a is not c
    assert nn.RoPE.__call__ is before
    assert type(nn.RoPE(16)) is nn.RoPE
    assert not model.parameters()["ropes"][0]


def test_rows_at_positions_of_their_own_go_to_the_reference():
    model = Holder(nn.RoPE(16))
    rotary.share(model)
    x, offsets = mx.random.normal((2, 2, 3, 16)), mx.array([4, 9])
    assert mx.array_equal(model.ropes[0](x, offsets), nn.RoPE(16)(x, offsets))
    half = x.astype(mx.bfloat16)
    assert model.ropes[0](half, 4).dtype == mx.bfloat16


def test_few_tables_are_kept():
    tables = rotary.Tables(lambda x, offset: nn.RoPE(16)(x, offset), 16, False)
    for offset in range(20):
        tables(mx.zeros((1, 1, 2, 16)), offset)
    assert len(tables._kept) == rotary.RECENT


def test_the_choice_is_raced_and_told():
    rotary.dispatch.cache_clear()
    choice = rotary.dispatch().choices["rope", "1x8x4x64"]
    if is_cpu():
        assert "differs" not in choice.reason
    else:
        assert choice.name == "reference"
