"""What is relied on in mlx-lm and mlx-vlm, by name: an upgrade that moves it fails here and says what moved."""

from __future__ import annotations

import importlib
import inspect
from importlib.metadata import version
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from engine.errors import UnsupportedModel
from engine.targets.families import FAMILIES, adapter
from engine.targets.recurrent_tape import GATED_DELTA, MAMBA2, Recurrence, record_mixers
from tests.engine.targets.conftest import Tiny

PARAMETERS = {
    "mlx_lm.models.gated_delta:gated_delta_update": {*GATED_DELTA.timed, GATED_DELTA.state, "A_log", "dt_bias"},
    "mlx_lm.models.ssm:ssm_update": {*MAMBA2.timed, MAMBA2.state, "A_log", "D", "dt_bias"},
    "mlx_lm.utils:load_model": {"model_path", "lazy", "model_config"},
    "mlx_lm.utils:_get_classes": {"config"},
    "mlx_lm.utils:dequantize_model": {"model"},
    "mlx_lm.models.cache:make_prompt_cache": {"model"},
    "mlx_lm.models.qwen3_5:GatedDeltaNet.__call__": {"inputs", "mask", "cache"},
    "mlx_lm.models.qwen3_next:Qwen3NextGatedDeltaNet.__call__": {"inputs", "mask", "cache"},
    "mlx_lm.models.nemotron_h:NemotronHMamba2Mixer.__call__": {"hidden_states", "mask", "cache"},
    "mlx_lm.models.lfm2:ShortConv.__call__": {"x", "mask", "cache"},
    "mlx_lm.models.lfm2_moe:ShortConv.__call__": {"x", "mask", "cache"},
    "mlx_lm.models.gemma4_text:Gemma4TextModel.__call__": {"inputs", "cache", "input_embeddings"},
    "mlx_lm.models.muse_glimmer:MuseGlimmerModel.__call__": {"inputs", "cache"},
}
VISION = {
    "mlx_vlm.models.muse_glimmer.muse_glimmer:VisionModel.__init__": {"config"},
    "mlx_vlm.models.muse_glimmer.muse_glimmer:VisionAdapter.__init__": {"config"},
    "mlx_vlm.models.muse_glimmer.config:ModelConfig.from_dict": {"params"},
    "mlx_vlm.models.muse_glimmer.processing_muse_glimmer:MuseGlimmerImageProcessor.__call__": {"images"},
    "mlx_vlm.models.muse_glimmer.processing_muse_glimmer:MuseGlimmerImageProcessor.__init__": {
        "patch_size",
        "merge_size",
        "max_image_tokens",
    },
    "mlx_vlm.models.muse_glimmer.processing_muse_glimmer:smart_resize": {
        "height",
        "width",
        "patch_size",
        "max_tokens",
    },
}


def find(path: str) -> Any:
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def check(path: str, wanted: set[str], package: str) -> None:
    try:
        signature = inspect.signature(find(path))
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{package} {version(package)} has no {path} any more: {error}")
    missing = wanted - signature.parameters.keys()
    assert not missing, f"{package} {version(package)}: {path}{signature} lost {sorted(missing)}"


@pytest.mark.parametrize("path", PARAMETERS)
def test_signatures_of_mlx_lm(path: str) -> None:
    check(path, PARAMETERS[path], "mlx-lm")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", VISION)
def test_signatures_of_mlx_vlm(path: str) -> None:
    pytest.importorskip("mlx_vlm", reason="needs the vision extra (mlx-vlm)")
    check(path, VISION[path], "mlx-vlm")


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_family_has_its_file_and_its_library_model(model_type: str) -> None:
    from mlx_lm.utils import _get_classes

    assert callable(adapter(model_type))
    model_class, _ = _get_classes({"model_type": model_type})
    assert issubclass(model_class, nn.Module)


def elsewhere(inputs: mx.array, state: mx.array | None = None) -> tuple[mx.array, mx.array]:
    return inputs, inputs


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1d = nn.Conv1d(2, 2, 3)

    def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        return elsewhere(x)[0]


def test_a_recurrence_that_lost_a_parameter_is_named() -> None:
    with pytest.raises(UnsupportedModel, match=r"elsewhere\(inputs.*lacks dt, q"):
        record_mixers([Mixer()], "conv1d", Recurrence("elsewhere", frozenset({"q", "dt", "inputs"})))


def test_a_mixer_that_calls_something_else_is_named() -> None:
    with pytest.raises(UnsupportedModel, match=r"Mixer no longer calls gated_delta_update"):
        record_mixers([Mixer()], "conv1d", GATED_DELTA)


@pytest.mark.parametrize("family", ["qwen3_5", "nemotron_h", "lfm2", "muse_glimmer"])
def test_nothing_of_the_library_is_changed(tiny: Tiny, family: str) -> None:
    """Recorders and taps live on instances: the classes, the modules and the parameter names are as they were."""
    module = importlib.import_module(f"mlx_lm.models.{family}")
    before = {name: value for name, value in vars(module).items() if callable(value)}
    methods = {
        (name, attr): vars(value).get(attr)
        for name, value in before.items()
        if inspect.isclass(value)
        for attr in ("__call__", "_conv", "_ssm", "__init__")
    }
    target = tiny(family)
    state = target.new_state()
    with state.begin(3) as round:
        target.body(mx.array([[1, 2, 3]]), state, range(target.spec.num_layers))
        round.commit(1)
    assert {name: value for name, value in vars(module).items() if callable(value)} == before
    assert all(vars(before[name]).get(attr) is value for (name, attr), value in methods.items())
    fresh = type(target.model)
    assert fresh.__module__.startswith("mlx_lm")
