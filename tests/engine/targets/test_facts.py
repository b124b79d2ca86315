"""A config or a folder that no model can come from is refused in one sentence, before anything is built from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.errors import LoadError, UnsupportedModel
from engine.targets.load import load_target

TINY = Path(__file__).parents[2] / "golden" / "targets" / "tiny-qwen3"

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"num_hidden_layers": 100_000}, "num_hidden_layers = 100000, not a whole number from 1 to 1024"),
    ({"hidden_size": 0}, "hidden_size = 0"),
    ({"hidden_size": -64}, "hidden_size = -64"),
    ({"hidden_size": "64"}, "hidden_size = 64"),
    ({"hidden_size": 1 << 40}, "hidden_size"),
    ({"vocab_size": True}, "vocab_size = True"),
    ({"num_attention_heads": 0}, "num_attention_heads = 0"),
    ({"num_attention_heads": 5, "num_key_value_heads": 2}, "not a multiple of its 2 key heads"),
    ({"num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": None}, "not a multiple of its 5 heads"),
    ({"max_position_embeddings": 0}, "max_position_embeddings = 0, not a length"),
    ({"max_position_embeddings": "long"}, "not a length"),
    ({"eos_token_id": [2, "end"]}, "eos_token_id"),
    ({"eos_token_id": 2.5}, "eos_token_id"),
    ({"bos_token_id": "<s>"}, "bos_token_id"),
    ({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64}}, "packed by AWQ"),
    ({"rms_norm_eps": "small", "intermediate_size": {}}, "be (built|loaded)"),
]


def copy(folder: Path, **changes: Any) -> Path:
    made = folder / "m"
    shutil.copytree(TINY, made)
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**config, **changes}))
    return made


@pytest.mark.parametrize(("changes", "says"), WRONG, ids=[says for _, says in WRONG])
def test_a_config_that_no_model_has(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=says) as caught:
        load_target(copy(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_stop_tokens_of_the_generation_config_are_numbers(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, "end"]}')
    with pytest.raises(UnsupportedModel, match="generation_config.json gives eos_token_id"):
        load_target(folder)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(LoadError, match="tokenizer"):
        load_target(folder)


def test_a_byte_order_mark_is_named(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    (folder / "config.json").write_bytes(b"\xef\xbb\xbf" + (folder / "config.json").read_bytes())
    with pytest.raises(LoadError, match="byte order mark"):
        load_target(folder)
