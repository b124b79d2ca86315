"""`-i` with the real engine: what is answered, and what is refused before anything is answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cli.commands.answer import make_request
from engine.config import Config
from engine.errors import ImageUnsupported, PictureUnreadable
from engine.load import open_engine
from tests.tools.make_tiny_models import make


def test_a_text_model_refuses_by_name(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), "red").save(tmp_path / "cat.png")
    with open_engine(make("llama", tmp_path / "m"), name="tiny-llama") as engine:
        with pytest.raises(ImageUnsupported, match=r"tiny-llama reads text only.*cat\.png"):
            make_request(engine, Config(), "What is it?", [str(tmp_path / "cat.png")])
        with pytest.raises(PictureUnreadable, match="no file"):
            make_request(engine, Config(), "What is it?", [str(tmp_path / "dog.png")])


@pytest.mark.filterwarnings("ignore")
def test_the_pictures_are_in_the_request(tmp_path: Path) -> None:
    pytest.importorskip("mlx_vlm", reason="needs the vision extra (mlx-vlm)")
    for name, colour in (("a", "red"), ("b", "blue")):
        Image.new("RGB", (24, 16), colour).save(tmp_path / f"{name}.png")
    with open_engine(make("muse_glimmer", tmp_path / "m", vision=True), name="muse") as engine:
        files = [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
        request: Any = make_request(engine, Config(max_tokens=4), "Which is red?", files).request
        assert len(request.media) == len(set(request.media)) == 2
        assert request.embeddings.shape[1] == len(request.prompt)
        assert all(0 < b < len(request.prompt) for b in request.boundaries)
        assert engine.submit(request).text()
