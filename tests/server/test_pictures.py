"""Pictures over HTTP: each dialect's way to send one gives the engine's own answer; bad ones are the client's error."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
from live_server import Live
from PIL import Image

from engine.chat.images import read_picture
from engine.engine import Engine, Options
from engine.load import open_engine
from engine.prefix_cache.cache import PrefixCache
from engine.types import Request
from server.settings import Settings
from tests.tools.make_tiny_models import make

pytest.importorskip("mlx_vlm", reason="needs the vision extra (mlx-vlm)")
pytestmark = pytest.mark.filterwarnings("ignore")
WORDS = "What is it?"


def png(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (16, 24, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = make("muse_glimmer", tmp_path_factory.mktemp("muse") / "muse", vision=True)
    with open_engine(folder, name="muse", options=Options(cache=PrefixCache(64 << 20))) as engine:
        yield engine


@pytest.fixture(scope="module")
def live(engine: Engine) -> Any:
    server = Live(engine, Settings(keys=()))
    yield server
    server.close()


def expected(engine: Engine, seed: int) -> tuple[str, int]:
    """What the engine itself answers, and the length of the prompt."""
    content = [{"type": "image"}, {"type": "text", "text": WORDS}]
    ids = engine.format.render([{"role": "user", "content": content}])
    seen = engine.see(ids, [read_picture(png(seed))])
    request = Request(seen.ids, max_tokens=12, embeddings=seen.embeddings, media=seen.media)
    return engine.submit(request).text(), len(seen.ids)


def encoded(seed: int) -> str:
    return base64.b64encode(png(seed)).decode()


def ask(live: Any, path: str, content: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    key = "input" if path.endswith("responses") else "messages"
    answer = live.http.post(path, json={key: [{"role": "user", "content": content}], **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("seed", [1, 2])
def test_chat_completions(live: Any, engine: Engine, seed: int) -> None:
    text, length = expected(engine, seed)
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded(seed)}"}}
    found = ask(live, "/v1/chat/completions", [image, {"type": "text", "text": WORDS}], max_tokens=12)
    assert found["choices"][0]["message"]["content"] == text
    assert found["usage"]["prompt_tokens"] == length


def test_messages(live: Any, engine: Engine) -> None:
    text, length = expected(engine, 1)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded(1)}}
    found = ask(live, "/v1/messages", [image, {"type": "text", "text": WORDS}], max_tokens=12, model="muse")
    assert found["content"][0]["text"] == text
    counted = ask(live, "/v1/messages/count_tokens", [image, {"type": "text", "text": WORDS}], model="muse")
    assert counted["input_tokens"] == length


def test_responses(live: Any, engine: Engine) -> None:
    text, _ = expected(engine, 1)
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{encoded(1)}"}
    found = ask(live, "/v1/responses", [image, {"type": "input_text", "text": WORDS}], max_output_tokens=12)
    assert found["output"][-1]["content"][0]["text"] == text


@pytest.mark.parametrize(("data", "words"), [(b"hello", "not a picture"), (png(1)[:60], "damaged")])
def test_a_bad_picture_is_the_clients_error(live: Any, data: bytes, words: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}
    body = {"messages": [{"role": "user", "content": [image, {"type": "text", "text": WORDS}]}]}
    answer = live.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]
