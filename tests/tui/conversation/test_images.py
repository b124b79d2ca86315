"""Pictures in the app's conversations: named in a message, kept as they were sent, refused by a text model."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.chat.images import Picture, Prompt
from engine.config import Config
from engine.errors import ImageUnsupported, PictureUnreadable
from engine.types import Failed, Finished, Media, Usage
from tests.tui.drive import running, shown, wait_until
from tests.tui.fakes import FakeEngine, FakeSpec
from tui.app import ChatApp
from tui.commands import registry as commands
from tui.conversation.images import Album, Attachment
from tui.conversation.session import ChatSession
from tui.options import Options
from tui.plain.chat import Plain
from tui.widgets.composer.attachments import Attachments, rows


def save(path: Path, colour: str, size: tuple[int, int] = (8, 6)) -> Path:
    Image.new("RGB", size, colour).save(path)
    return path


class Seeing(FakeEngine):
    """Each picture takes five rows."""

    seen: Sequence[Picture] = ()

    def see(self, ids: Sequence[int], pictures: Sequence[Picture]) -> Prompt:
        self.seen = pictures
        places = tuple((i, 5) for i in range(len(pictures)))
        return Prompt(list(ids), None, tuple(Media(p.key, i, 5) for i, p in enumerate(pictures)), places)

    def picture_tokens(self, picture: Picture) -> int:
        return 5


def session(vision: bool = True) -> tuple[ChatSession, Any]:
    made = ChatSession()
    engine = Seeing(manual=True)
    engine.spec = FakeSpec(vision=vision)
    made.engine = engine  # type: ignore[assignment]
    return made, engine


def say(made: ChatSession, text: str) -> list[Any]:
    events: list[Any] = []
    turn = made.begin(text)
    made.submit(turn, events.append)
    return events


def end(made: ChatSession) -> None:
    turn = made.turn
    assert turn is not None
    turn.answer.text = "an answer"
    made.apply(Finished(turn.id, "stop", Usage()))


def test_a_named_picture_is_sent_in_its_place(tmp_path: Path) -> None:
    made, engine = session()
    path = save(tmp_path / "cat.png", "red")
    assert say(made, f"what is @{path} here?") == []
    assert [p.name for p in engine.seen] == ["cat.png"]
    request = engine.tickets[-1].request
    assert [m.key for m in request.media] == [p.key for p in engine.seen]
    text = "".join(chr(i) for i in request.prompt)
    assert text.index("what is ") < text.index("'image'") < text.index(" here?")
    assert made.chat.turns[-1].images == ("cat.png 8×6 · 1 kB · 5 tokens",)


def test_each_turn_keeps_the_picture_that_was_sent(tmp_path: Path) -> None:
    """Overwritten between two questions: the first keeps the old picture, the second has the new one (O61)."""
    made, engine = session()
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


def test_n12_a_picture_of_an_earlier_turn_is_a_note_for_a_text_model(tmp_path: Path) -> None:
    path = save(tmp_path / "cat.png", "red")
    messages = [
        {"role": "user", "content": f"@{path} what colour?"},
        {"role": "assistant", "content": "Red."},
        {"role": "user", "content": "sure?"},
    ]
    placed, pictures = Album().place(messages, "m", False)
    assert not pictures
    assert str(placed).count("[cat.png]") == 1
    with pytest.raises(ImageUnsupported):
        Album().place(messages[:1], "m", False)


def test_a_text_model_refuses_by_name(tmp_path: Path) -> None:
    made, engine = session(vision=False)
    events = say(made, f"what is @{save(tmp_path / 'cat.png', 'red')} ?")
    assert isinstance(events[0], Failed)
    assert isinstance(events[0].error, ImageUnsupported)
    assert "cat.png" in events[0].message
    assert not engine.tickets


def test_a_broken_picture_is_a_sentence(tmp_path: Path) -> None:
    made, _ = session()
    (tmp_path / "cat.png").write_bytes(b"no picture")
    events = say(made, f"@{tmp_path / 'cat.png'}")
    assert isinstance(events[0].error, PictureUnreadable)


async def test_the_image_command_sends_with_the_next_message(tmp_path: Path) -> None:
    made, engine = session()
    path = save(tmp_path / "two words.png", "red")

    host = Plain(Options(Config()), io.StringIO(), "none")
    host.session = made
    line = "two words.png 8×6 · 1 kB · 5 tokens"
    for spelt in (f"'{path}'", str(path).replace(" ", "\\ "), f"file://{str(path).replace(' ', '%20')}"):
        assert await commands.run(host, *commands.parse(f"/image {spelt}")) == f"{line}: goes with the next message."
        assert made.album.waiting.pop() == path
    assert await commands.run(host, *commands.parse(f"/image {path}")) == f"{line}: goes with the next message."
    assert "no file" in str(await commands.run(host, *commands.parse("/image /nowhere/x.png")))
    say(made, "what is it?")
    assert [p.name for p in engine.seen] == ["two words.png"]
    end(made)
    say(made, "and?")
    assert made.chat.turns[-1].images == ()
    made.engine.spec = FakeSpec(vision=False)  # type: ignore[union-attr,misc]
    assert "reads text only" in str(await commands.run(host, *commands.parse(f"/image {path}")))
    assert made.album.waiting == []


async def test_a_picture_that_waits_and_cannot_be_sent_is_let_go(tmp_path: Path) -> None:
    """In the app reading goes on beside the screen: the picture waits at once, until something is wrong with it."""
    engine = Seeing(manual=True)
    engine.spec = FakeSpec(vision=True)
    (tmp_path / "cat.png").write_bytes(b"no picture")
    red = save(tmp_path / "red.png", "red")
    async with running(engine, size=(100, 30)) as (app, pilot, _):
        assert "no file" in str(await commands.run(app.main.host, *commands.parse(f"/image {tmp_path / 'absent.png'}")))  # type: ignore[arg-type]
        for path in (red, tmp_path / "cat.png"):
            assert await commands.run(app.main.host, *commands.parse(f"/image {path}")) is None  # type: ignore[arg-type]
            assert path in app.session.album.waiting
        await wait_until(pilot, lambda: app.session.album.waiting == [red])
        await wait_for(pilot, app, ["red.png 8×6 · 1 kB · 5 tokens"])
        assert "cat.png is not a picture" in shown(app)


def attachments(app: ChatApp) -> list[str]:
    row = app.query_one(Attachments)
    assert row.display == bool(row.shown)
    return [("!" if a.trouble else "") + a.text for a in row.shown]


async def wait_for(pilot: Any, app: ChatApp, wanted: list[str]) -> None:
    for _ in range(200):
        await pilot.pause(0.02)
        if attachments(app) == wanted:
            return
    assert attachments(app) == wanted


async def test_the_cost_is_shown_before_sending(tmp_path: Path) -> None:
    """Named, pasted, waiting: each picture of the message has a row with what it is and costs."""
    engine = Seeing(manual=True)
    engine.spec = FakeSpec(vision=True)
    red, blue = save(tmp_path / "red.png", "red"), save(tmp_path / "two words.png", "blue", (30, 20))
    async with running(engine, size=(100, 30)) as (app, pilot, _):
        app.main.composer.load_text("look:\n")
        app.main.composer.move_cursor(app.main.composer.document.end)
        app.main.composer.paste(f"'{blue}'")
        await wait_for(pilot, app, ["two words.png 30×20 · 1 kB · 5 tokens"])
        app.main.composer.load_text(f"@{red} and @'{blue}'")
        both = ["red.png 8×6 · 1 kB · 5 tokens", "two words.png 30×20 · 1 kB · 5 tokens"]
        await wait_for(pilot, app, both)
        app.main.composer.load_text("no picture")
        await wait_for(pilot, app, [])
        app.main.composer.load_text(f"/image {red}")
        app.main.composer.action_send()
        await wait_for(pilot, app, both[:1])
        app.main.composer.load_text("what is it?")
        app.main.composer.action_send()
        await wait_for(pilot, app, [])
        assert [p.name for p in engine.seen] == ["red.png"]
        assert "└ image: red.png 8×6 · 1 kB · 5 tokens" in shown(app)


async def test_a_message_sent_at_once_says_it_too(tmp_path: Path) -> None:
    """Its picture was not looked at before it was sent."""
    engine = Seeing(manual=True)
    engine.spec = FakeSpec(vision=True)
    path = save(tmp_path / "red.png", "red")
    async with running(engine, size=(100, 30)) as (app, pilot, _):
        app.main.submit(f"@{path} what is it?")
        await wait_until(pilot, lambda: "└ image: red.png 8×6 · 1 kB · 5 tokens" in shown(app))


async def test_what_cannot_be_sent_is_said_before_it_is(tmp_path: Path) -> None:
    engine = Seeing(manual=True)
    engine.spec = FakeSpec(vision=True)
    path = tmp_path / "cat.png"
    path.write_bytes(b"no picture")
    async with running(engine, size=(100, 30)) as (app, pilot, _):
        app.main.composer.load_text(f"@{path} what is it?")
        await wait_for(pilot, app, ["!cat.png is not a picture that can be read: use PNG, JPEG, WebP or GIF."])
        app.main.composer.action_send()
        await wait_until(pilot, lambda: any("not a picture" in n.message for n in app._notifications))
        assert app.main.composer.text == f"@{path} what is it?", "the message did not stay where it was written"
        assert not app.session.chat.turns
        save(path, "red")  # saved anew while the message is being written
        app.main.composer.load_text(f"@{path} what is it now?")
        await wait_for(pilot, app, ["cat.png 8×6 · 1 kB · 5 tokens"])
        engine.spec = FakeSpec(vision=False)
        app.session.engine = Seeing(manual=True)
        app.main.area.pictures_changed()
        await wait_for(
            pilot, app, ["!fake-135m reads text only: choose a model that sees pictures, or leave cat.png out."]
        )


def test_more_pictures_than_rows() -> None:
    lines = rows([Attachment(f"{i}.png") for i in range(5)], 80).plain.split("\n")
    assert lines == ["└ image: 0.png", "└ image: 1.png", "└ and 3 more images"]
    assert rows([Attachment("a\x1b[31m\nb.png", True)], 80).plain == "└ not sent: a b.png"
    assert len(rows([Attachment("x" * 200)], 40).plain) <= 40


@pytest.mark.filterwarnings("ignore")
def test_with_the_real_engine(tmp_path: Path) -> None:
    pytest.importorskip("mlx_vlm", reason="needs the vision extra (mlx-vlm)")
    from engine.load import open_engine
    from tests.tools.make_tiny_models import make

    path = save(tmp_path / "cat.png", "red", (24, 16))
    made = ChatSession()
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
    assert turn.images == ("cat.png 24×16 · 1 kB · 8 tokens",)
