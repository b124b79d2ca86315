"""Tables instead of `mx.fast.rope`: equal to the last bit, on every kind of rope that they serve."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models.rope_utils import initialize_rope

from engine.backend import is_cpu, rope

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 256}


class Holder(nn.Module):
    def __init__(self, *ropes: nn.Module) -> None:
        super().__init__()
        self.ropes = list(ropes)


@pytest.fixture(autouse=True)
def _on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rope, "tabled", lambda: True)


@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize("width", [32, 48])
@pytest.mark.parametrize("scaling", [None, LLAMA3])
@pytest.mark.skipif(not is_cpu(), reason="elsewhere a kernel of MLX's serves, and tables never do")
def test_equal_to_the_last_bit(traditional: bool, width: int, scaling: dict[str, object] | None):
    def make() -> nn.Module:
        return initialize_rope(32, 10000.0, traditional, scaling, 4096)

    reference, model = make(), Holder(make(), make())
    rope.share(model)
    for offset, rows in [(0, 1), (0, 7), (7, 1), (7, 3), (1999, 5), (7, 3), (250, 9), (5, 300)]:
        for layer in model.ropes:
            x = mx.random.normal((2, 3, rows, width))
            assert mx.array_equal(layer(x, offset), reference(x, offset)), (offset, rows)


def test_layers_share_and_classes_stay():
    model = Holder(nn.RoPE(16), nn.RoPE(16), nn.RoPE(16, base=500.0))
    before = nn.RoPE.__call__
    rope.share(model)
    a, b, c = (layer.__dict__["_dspark_tables"] for layer in model.ropes)
    assert a is b
    assert a is not c
    assert nn.RoPE.__call__ is before
    assert type(nn.RoPE(16)) is nn.RoPE
    assert not model.parameters()["ropes"][0]


@pytest.mark.skipif(not is_cpu(), reason="elsewhere a kernel of MLX's serves, and tables never do")
@pytest.mark.parametrize("traditional", [False, True])
def test_rows_at_positions_of_their_own(traditional: bool):
    reference, model = nn.RoPE(16, traditional), Holder(nn.RoPE(16, traditional))
    rope.share(model)
    x, offsets = mx.random.normal((3, 2, 3, 16)), mx.array([4, 300, 511])
    assert mx.array_equal(model.ropes[0](x, offsets), reference(x, offsets))  # pyright: ignore[reportArgumentType]
    half = x.astype(mx.bfloat16)
    assert model.ropes[0](half, 4).dtype == mx.bfloat16


def tables() -> rope.Tables:
    return rope.Tables(lambda x, offset: nn.RoPE(16)(x, offset), 16, False)


def test_few_tables_are_kept():
    some = tables()
    for offset in range(0, 100 * rope.PAGE, 100):
        some(mx.zeros((1, 1, 2, 16)), offset)
    assert len(some._kept) == rope.RECENT
    assert len(some._pages) == rope.PAGES


@pytest.mark.skipif(not is_cpu(), reason="elsewhere a kernel of MLX's serves, and tables never do")
def test_pages_join_without_a_seam_and_are_made_once():
    some, reference, made = tables(), nn.RoPE(16), 0
    build = some._build

    def counted(*args: int) -> rope.Factors:
        nonlocal made
        made += 1
        return build(*args)

    some._build = counted  # pyright: ignore[reportAttributeAccessIssue]
    for offset in range(250, 2 * rope.PAGE, 3):
        x = mx.random.normal((1, 2, 7, 16))
        assert mx.array_equal(some(x, offset), reference(x, offset)), offset
    assert made == 2


def test_the_choice_is_raced_and_told():
    rope.dispatch.cache_clear()
    choice = rope.dispatch().choices["rope", "1x8x4x64"]
    if is_cpu():
        assert "differs" not in choice.reason
    else:
        assert choice.name == "reference"
