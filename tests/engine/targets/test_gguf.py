"""GGUF files: a small one written here, and the embedded model where this machine has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine import backend, hub
from engine.errors import UnsupportedModel, WeightsDamaged, WeightsMissing
from engine.targets import gguf
from engine.targets.gguf import load_gguf

H, HEADS, KV, DIM, MLP, LAYERS = 32, 4, 2, 8, 64, 2
LETTERS = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256))] + [chr(256 + n) for n in range(68)]
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *LETTERS, "he", "ll", "hell", "hello", "12", "\u0120w"]
MERGES = ["h e", "l l", "he ll", "hell o", "1 2", "\u0120 w"]


def metadata(**changes: Any) -> dict[str, Any]:
    number = lambda value: mx.array(value, dtype=mx.uint32)  # noqa: E731
    values = {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.embedding_length": number(H),
        "llama.feed_forward_length": number(MLP),
        "llama.block_count": number(LAYERS),
        "llama.attention.head_count": number(HEADS),
        "llama.attention.head_count_kv": number(KV),
        "llama.rope.freq_base": mx.array(100000.0),
        "llama.rope.dimension_count": number(DIM),
        "llama.context_length": number(256),
        "llama.attention.layer_norm_rms_epsilon": mx.array(1e-5),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.token_type": mx.array([3, 3, 3] + [1] * (len(TOKENS) - 3), dtype=mx.int32),
        "tokenizer.ggml.bos_token_id": number(1),
        "tokenizer.ggml.eos_token_id": number(2),
        "tokenizer.chat_template": "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}",
    }
    values.update(changes)
    return {key: value for key, value in values.items() if value is not None}


def tensors() -> dict[str, mx.array]:
    mx.random.seed(0)
    shapes = {"token_embd": (len(TOKENS), H), "output_norm": (H,)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.{part}": shape
            for part, shape in {
                "attn_norm": (H,),
                "attn_q": (HEADS * DIM, H),
                "attn_k": (KV * DIM, H),
                "attn_v": (KV * DIM, H),
                "attn_output": (H, HEADS * DIM),
                "ffn_norm": (H,),
                "ffn_gate": (MLP, H),
                "ffn_up": (MLP, H),
                "ffn_down": (H, MLP),
            }.items()
        }
    return {f"{name}.weight": mx.random.normal(shape) * 0.1 for name, shape in shapes.items()}


def write(folder: Path, arrays: dict[str, mx.array] | None = None, **changes: Any) -> Path:
    path = folder / "tiny.gguf"
    mx.save_gguf(str(path), tensors() if arrays is None else arrays, metadata(**changes))
    return path


def test_a_file_becomes_config_weights_and_tokenizer(tmp_path: Path):
    found = load_gguf(write(tmp_path))
    assert found.config["rope_traditional"] is True
    assert found.config["tie_word_embeddings"] is True
    assert (found.config["head_dim"], found.config["num_key_value_heads"]) == (DIM, KV)
    assert found.config["eos_token_id"] == [2, 0]
    assert found.weights["model.layers.1.self_attn.q_proj.weight"].shape == (HEADS * DIM, H)
    from mlx_lm.models import llama

    model = llama.Model(llama.ModelArgs.from_dict(found.config))
    model.load_weights(list(found.weights.items()))
    assert model(mx.array([[1, 2, 3]])).shape == (1, 3, len(TOKENS))


def test_control_tokens_are_single_and_text_round_trips(tmp_path: Path):
    tokenizer = load_gguf(write(tmp_path)).tokenizer
    assert tokenizer.encode("<|im_start|>hello<|im_end|>") == [1, TOKENS.index("hello"), 2]
    for text in ("hello  world\n\ttabs", "naïve 日本 🦊", "12345"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.apply_chat_template([{"content": "hello"}], tokenize=False) == "<|im_start|>hello<|im_end|>"


def test_smollm_cuts_digits_one_by_one_and_gpt2_does_not(tmp_path: Path):
    assert len(load_gguf(write(tmp_path)).tokenizer.encode("12")) == 2
    assert len(load_gguf(write(tmp_path, **{"tokenizer.ggml.pre": "gpt-2"})).tokenizer.encode("12")) == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"general.architecture": "bert"}, "is a bert GGUF"),
        ({"tokenizer.ggml.model": "llama"}, "has a llama tokenizer"),
        ({"tokenizer.ggml.pre": "llama-bpe"}, "cuts text the llama-bpe way"),
    ],
)
def test_what_is_not_read_is_refused_with_the_reason(tmp_path: Path, changes: dict[str, Any], says: str):
    with pytest.raises(UnsupportedModel, match=says):
        load_gguf(write(tmp_path, **changes))


def test_foreign_and_scaled_tensors_are_refused(tmp_path: Path):
    with pytest.raises(UnsupportedModel, match="does not have"):
        load_gguf(write(tmp_path, {**tensors(), "blk.0.ssm_conv1d.weight": mx.zeros((4,))}))
    with pytest.raises(UnsupportedModel, match="rotary"):
        load_gguf(write(tmp_path, {**tensors(), "rope_freqs.weight": mx.zeros((4,))}))


@pytest.mark.parametrize("size", [0, 100, 2000, -100])
def test_truncated_files_are_damaged_never_a_crash(tmp_path: Path, size: int):
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(WeightsDamaged, match="fetch it again"):
        load_gguf(path)


def test_a_file_that_may_not_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path)

    def refused(*_: object, **__: object) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(WeightsDamaged, match="Permission denied.*permissions"):
        load_gguf(path)


def test_no_file(tmp_path: Path):
    with pytest.raises(WeightsMissing):
        load_gguf(tmp_path / "none.gguf")


def quantized() -> dict[str, mx.array]:
    """As `mx.load` returns Q4_1 and Q8_0: triplets under the checkpoint's names."""
    weights = {gguf._rename(name, "x"): array for name, array in tensors().items()}
    for name in [n for n, a in weights.items() if a.ndim == 2]:
        bits = 8 if "embed" in name else 4
        packed, scales, biases = mx.quantize(weights[name], group_size=32, bits=bits)
        stem = name.removesuffix(".weight")
        weights |= {
            name: packed,
            f"{stem}.scales": scales.astype(mx.float16),
            f"{stem}.biases": biases.astype(mx.float16),
        }
    return weights


def test_quantised_weights_become_float32_on_the_cpu():
    dense = gguf._numbers(quantized(), {})
    assert {a.dtype for a in dense.values()} == {mx.float32}
    original = tensors()["blk.0.ffn_up.weight"]
    assert mx.abs(dense["model.layers.0.mlp.up_proj.weight"] - original).max().item() < 0.05


def test_quantised_weights_stay_elsewhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(backend, "float32_only", lambda: False)
    config: dict[str, Any] = {}
    kept = gguf._numbers(quantized(), config)
    assert config["quantization"] == {
        "group_size": 32,
        "bits": 4,
        "model.embed_tokens": {"group_size": 32, "bits": 8},
    }
    assert {a.dtype for a in kept.values()} == {mx.uint32, mx.float16}


@pytest.mark.weights
def test_the_embedded_model_answers():
    found = hub.find("")
    if found.path is None:
        pytest.skip("the embedded model is not on this machine; `dspark-chat models fetch smollm2-135m`")
    from engine.targets.load import load_target

    loaded = load_target(found.path)
    tokenizer = loaded.tokenizer
    assert [tokenizer.encode(t, special=True) for t in ("<|im_start|>", "<|im_end|>", "<|endoftext|>")] == [
        [1],
        [2],
        [0],
    ]
    assert tokenizer.encode("it's 123 done") == tokenizer.encode("it's 123 done", special=True)
    assert tokenizer.decode(tokenizer.encode("日本語 🦊 naïve")) == "日本語 🦊 naïve"
    ids = tokenizer.encode(
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n", special=True
    )
    state = loaded.target.new_state()
    out: list[int] = []
    while len(out) < 8 and not (out and out[-1] in loaded.target.spec.stop_ids):
        feed = out[-1:] or ids
        with state.begin(len(feed), record=False) as transaction:
            hidden = loaded.target.body(mx.array([feed], dtype=mx.int32), state).hidden
            out.append(int(mx.argmax(loaded.target.logits(hidden)[0, -1]).item()))
            transaction.commit(len(feed))
    assert tokenizer.decode(out[:-1]) == "The capital of France is Paris."
