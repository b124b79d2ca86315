"""Pictures in the app's conversations: named in a message, kept as they were sent, refused by a text model."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.config import Config
from engine.core import Failed, Finished, Usage
from engine.errors import ImageUnsupported, PictureUnreadable
from engine.vision import Picture, Prompt
from tests.tui.fakes import FakeEngine, FakeSpec
from tui import commands
from tui.controller import Controller
from tui.pictures import Album


def save(path: Path, colour: str, size: tuple[int, int] = (8, 6)) -> Path:
    Image.new("RGB", size, colour).save(path)
    return path


class Seeing(FakeEngine):
    """Each picture takes five rows."""

    seen: Sequence[Picture] = ()

    def see(self, ids: Sequence[int], pictures: Sequence[Picture]) -> Prompt:
        self.seen = pictures
        places = tuple((i, 5) for i in range(len(pictures)))
        return Prompt(list(ids), None, tuple(p.key for p in pictures), places)


def controller(vision: bool = True) -> tuple[Controller, Any]:
    made = Controller()
    engine = Seeing(manual=True)
    engine.spec = FakeSpec(vision=vision)
    made.engine = engine  # type: ignore[assignment]
    return made, engine


def say(made: Controller, text: str) -> list[Any]:
    events: list[Any] = []
    turn = made.begin(text)
    made.submit(turn, events.append)
    return events


def end(made: Controller) -> None:
    turn = made.turn
    assert turn is not None
    turn.answer.text = "an answer"
    made.apply(Finished(turn.id, "stop", Usage()))


def test_a_named_picture_is_sent_in_its_place(tmp_path: Path) -> None:
    made, engine = controller()
    path = save(tmp_path / "cat.png", "red")
    assert say(made, f"what is @{path} here?") == []
    assert [p.name for p in engine.seen] == ["cat.png"]
    request = engine.tickets[-1].request
    assert request.media == tuple(p.key for p in engine.seen)
    text = "".join(chr(i) for i in request.prompt)
    assert text.index("what is ") < text.index("'image'") < text.index(" here?")
    assert made.chat.turns[-1].images == ("cat.png 8×6 · 1 KB · 5 tokens",)


def test_each_turn_keeps_the_picture_that_was_sent(tmp_path: Path) -> None:
    """Overwritten between two questions: the first keeps the old picture, the second has the new one (O61)."""
    made, engine = controller()
    path = save(tmp_path / "cat.png", "red")
    say(made, f"@{path} what colour?")
    old = engine.seen[0].key
    end(made)
    save(path, "blue")
    say(made, f"@{path} and now?")
    assert [p.key == old for p in engine.seen] == [True, False]
    assert len(made.chat.turns[-1].images) == 1


def test_a_picture_that_is_gone_after_a_restart_is_named_in_words(tmp_path: Path) -> None:
    path = save(tmp_path / "cat.png", "red")
    messages = [
        {"role": "user", "content": f"@{path} what colour?"},
        {"role": "assistant", "content": "Red."},
        {"role": "user", "content": "sure?"},
    ]
    album = Album()
    _, pictures = album.place(messages, "m", True)
    assert len(pictures) == 1
    path.write_bytes(b"broken")
    placed, pictures = album.place(messages, "m", True)
    assert len(pictures) == 1
    placed, pictures = Album().place(messages, "m", True)
    assert not pictures
    assert {"type": "text", "text": "[cat.png]"} in placed[0]["content"]


def test_a_text_model_refuses_by_name(tmp_path: Path) -> None:
    made, engine = controller(vision=False)
    events = say(made, f"what is @{save(tmp_path / 'cat.png', 'red')} ?")
    assert isinstance(events[0], Failed)
    assert isinstance(events[0].error, ImageUnsupported)
    assert "cat.png" in events[0].message
    assert not engine.tickets


def test_a_broken_picture_is_a_sentence(tmp_path: Path) -> None:
    made, _ = controller()
    (tmp_path / "cat.png").write_bytes(b"no picture")
    events = say(made, f"@{tmp_path / 'cat.png'}")
    assert isinstance(events[0].error, PictureUnreadable)


async def test_the_image_command_sends_with_the_next_message(tmp_path: Path) -> None:
    made, engine = controller()
    path = save(tmp_path / "two words.png", "red")

    class Host:
        controller = made

    host: Any = Host()
    assert await commands.run(host, f"/image {path}") == "two words.png 8×6 · 1 KB: goes with the next message."
    assert "no file" in str(await commands.run(host, "/image /nowhere/x.png"))
    say(made, "what is it?")
    assert [p.name for p in engine.seen] == ["two words.png"]
    end(made)
    say(made, "and?")
    assert made.chat.turns[-1].images == ()
    made.engine.spec = FakeSpec(vision=False)  # type: ignore[union-attr,misc]
    assert "reads text only" in str(await commands.run(host, f"/image {path}"))
    assert made.album.waiting == []


@pytest.mark.filterwarnings("ignore")
def test_with_the_real_engine(tmp_path: Path) -> None:
    pytest.importorskip("mlx_vlm", reason="needs the vision extra (mlx-vlm)")
    from engine.engine import open_engine
    from tests.tools.make_tiny_models import make

    path = save(tmp_path / "cat.png", "red", (24, 16))
    made = Controller()
    with open_engine(make("muse_glimmer", tmp_path / "m", vision=True)) as engine:
        made.engine = engine  # type: ignore[assignment]
        turn = made.begin(f"@{path} what is it?")
        made.config = Config(max_tokens=4)
        events: list[Any] = []
        done = threading.Event()

        def listen(event: Any) -> None:
            events.append(event)
            if isinstance(event, Finished | Failed):
                done.set()

        made.submit(turn, listen)
        assert done.wait(60)
    assert isinstance(events[-1], Finished), events[-1]
    assert turn.images == ("cat.png 24×16 · 1 KB · 8 tokens",)
