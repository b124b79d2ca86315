"""How Muse Glimmer sees: mlx-vlm's vision tower with the checkpoint's weights, loaded when the first picture comes.

A picture becomes rows that stand in for rows of the embedding table, so that text network, state and drafters need not
know of it. The body norms every row on its way in, as it does for words. Without mlx-vlm the model reads text only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from engine import backend
from engine.chat.images import Picture, Prompt
from engine.errors import ImageUnsupported, WeightsMissing
from engine.types import Media
from engine.weight_files import safetensors
from engine.weight_files.json_file import read_object

PROCESSING = "mlx_vlm.models.muse_glimmer.processing_muse_glimmer"
PARTS = ("vision_tower", "vision_adapter", "vision_projection")
KEEP_BYTES = 256 * 2**20
"""Features of pictures that earlier turns showed, so that a later turn does not look at them again."""


class MuseEye:
    """Implements `engine.chat.images.Eye`; to be used on the model thread."""

    def __init__(self, folder: Path, config: Mapping[str, Any], embed: Callable[[mx.array], mx.array]) -> None:
        self._folder = folder
        self._config = config
        self._embed = embed
        self._placeholder = int(config["image_token_id"])
        self._processor: Any = None
        self._sight: Any = None
        self._frame: tuple[int, int] | None = None
        self._features: OrderedDict[str, mx.array] = OrderedDict()

    def tokens(self, picture: Picture) -> int:
        """By the processor's own rule for sizes."""
        processor = self._preparing()
        cell = int(processor.patch_size) * int(processor.merge_size)
        height, width = _library(PROCESSING).smart_resize(
            picture.height, picture.width, cell, processor.max_image_tokens
        )
        return (height // cell) * (width // cell) + 2

    def prompt(self, ids: Sequence[int], pictures: Sequence[Picture]) -> Prompt:
        places = sum(i == self._placeholder for i in ids)
        if places != len(pictures):
            raise ImageUnsupported(
                f"The conversation has {places} places for pictures and {len(pictures)} pictures: send each where it "
                "belongs."
            )
        if not pictures:
            return Prompt(list(ids), None, ())
        first, last = self._marks()
        out: list[int] = []
        rows: list[mx.array] = []
        placed: list[tuple[int, int]] = []
        media: list[Media] = []
        begin = 0
        left = iter(pictures)
        for at, token in enumerate(ids):
            if token != self._placeholder:
                continue
            picture = next(left)
            features = self._look(picture)
            words = [*ids[begin:at], first]
            out += [*words, *[self._placeholder] * features.shape[0], last]
            rows += [self._words(words), features, self._words([last])]
            count = features.shape[0] + 2
            media.append(Media(picture.key, len(out) - count, count))
            placed.append((at, count))
            begin = at + 1
        out += ids[begin:]
        if begin < len(ids):
            rows.append(self._words(ids[begin:]))
        return Prompt(out, mx.concatenate(rows)[None], tuple(media), tuple(placed))

    def _words(self, ids: Sequence[int]) -> mx.array:
        return self._embed(mx.array(list(ids), dtype=mx.int32))

    def _marks(self) -> tuple[int, int]:
        """Ids of what stands before and after a picture's rows."""
        if self._frame is None:
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
            first, last = (tokenizer.token_to_id(t) for t in ("<|image_start|>", "<|image_end|>"))
            if first is None or last is None:
                raise ImageUnsupported(f"The tokenizer of {self._folder.name} has no picture marks: text only.")
            self._frame = first, last
        return self._frame

    # Looking --------------------------------------------------------------------------------------------------------

    def _preparing(self) -> Any:
        if self._processor is None:
            stored = read_object(self._folder / "processor_config.json")
            options = stored.get("image_processor", stored)
            self._processor = _library(PROCESSING).MuseGlimmerImageProcessor(**options)
        return self._processor

    def _process(self, picture: Picture) -> tuple[np.ndarray, list[int]]:
        """Patches [n, d] and the grid (1, height, width) of one picture."""
        found = self._preparing()(images=[picture.image])
        return found["pixel_values"], [int(x) for x in found["image_grid_thw"][0]]

    def _look(self, picture: Picture) -> mx.array:
        """Rows [n, H] before the norm that the body applies."""
        known = self._features.get(picture.key)
        if known is None:
            patches, grid = self._process(picture)
            known = self._see(mx.array(patches), mx.array([grid]))
            mx.eval(known)
            self._features[picture.key] = known
            while len(self._features) > 1 and sum(f.nbytes for f in self._features.values()) > KEEP_BYTES:
                self._features.popitem(last=False)
        self._features.move_to_end(picture.key)
        return known

    def _see(self, patches: mx.array, grid: mx.array) -> mx.array:
        if self._sight is None:
            self._sight = _load_sight(self._folder, self._config)
        sight = self._sight
        seen = sight.vision_tower(patches.astype(sight.vision_projection.weight.dtype), grid)
        return sight.vision_projection(sight.vision_adapter(seen))


def has_eye(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether the checkpoint carries a vision tower (text-only conversions keep its config)."""
    if "vision_config" not in config or "image_token_id" not in config or not folder.is_dir():
        return False
    index = read_object(folder / "model.safetensors.index.json").get("weight_map")
    names = index if index else [k for file in folder.glob("*.safetensors") for k in safetensors.check(file)]
    return any(PARTS[0] in name for name in names)


def _load_sight(folder: Path, config: Mapping[str, Any]) -> nn.Module:
    library = _library("mlx_vlm.models.muse_glimmer.muse_glimmer")
    settings = _library("mlx_vlm.models.muse_glimmer.config").ModelConfig.from_dict(dict(config))
    sight = nn.Module()
    sight.vision_tower = library.VisionModel(settings.vision_config)
    sight.vision_adapter = library.VisionAdapter(settings)
    sight.vision_projection = nn.Linear(settings.projector_hidden_size, settings.text_config.hidden_size, bias=False)
    weights: dict[str, mx.array] = {}
    for file in sorted(folder.glob("*.safetensors")):
        arrays = safetensors.load(file)
        weights |= {n: v for k, v in arrays.items() if (n := k.removeprefix("model.")).startswith(PARTS)}
    _quantize(sight, weights, config)
    try:
        sight.load_weights(list(weights.items()))
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise WeightsMissing(
            f"The vision tower of {folder.name} is incomplete ({reason}): download it again."
        ) from error
    if backend.float32_only():
        sight.set_dtype(mx.float32)
    sight.eval()
    return sight


def _quantize(sight: nn.Module, weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> None:
    """Towers are usually stored whole; one that is packed says so by its scales."""
    packed = config.get("quantization")
    if packed and any(k.endswith(".scales") for k in weights):
        nn.quantize(
            sight,
            group_size=packed["group_size"],
            bits=packed["bits"],
            class_predicate=lambda path, _module: f"{path}.scales" in weights,
        )


def _library(name: str) -> Any:
    """A module of mlx-vlm, which is an extra: importing it takes seconds and its dependencies half a gigabyte."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImageUnsupported(
            f"Pictures need mlx-vlm, which cannot be imported ({error}): pip install 'dspark-chat[vision]'."
        ) from error
