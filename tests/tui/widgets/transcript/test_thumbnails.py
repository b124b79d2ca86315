"""Small pictures under a message: what is drawn, when there is only text, and pictures that mean harm."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageFile
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import Selection

from engine.chat.images import described, read_picture
from tests.tui.drive import running, shown, wait_until
from tui.app import ChatApp
from tui.conversation.chat import Chat, Status, Turn
from tui.widgets.transcript.line_view import PAD
from tui.widgets.transcript.message import UserView
from tui.widgets.transcript.thumbnails import COLUMNS, ROWS, Thumbs, lines


def test_the_shape_is_kept_within_a_few_rows() -> None:
    image = Image.new("RGB", (24, 12), "red")
    image.paste("blue", (12, 0, 24, 12))
    rows = lines(image, 100)
    assert len(rows) == ROWS
    assert [len(row.text.strip()) for row in rows] == [4 * ROWS] * ROWS
    assert [run.style for run in rows[0].runs[1:]] == ["#ff0000/#ff0000", "#0000ff/#0000ff"]
    for size in ((1, 4000), (4000, 1), (3, 3), (1, 1)):
        for width in (0, 5, 6, 20, 200):
            rows = lines(Image.new("RGB", size), width)
            assert len(rows) <= ROWS
            assert all(len(row.text) <= min(width, COLUMNS + 4) for row in rows)


def pictured(path: Path) -> Turn:
    """A turn that sent a picture, told so as the app tells it."""
    turn = Turn(f"what is this @{path}", images=(f"{described(read_picture(path))} · 64 tokens",))
    turn.answer.text, turn.answer.prov, turn.answer.status = "a picture", bytearray(9), Status.DONE
    return turn


def colours(app: ChatApp) -> set[str]:
    """Of what is drawn in half blocks."""
    rows = [app.main.transcript.render_line(y) for y in range(app.main.transcript.size.height)]
    return {str(s.style.color.name) for row in rows for s in row if "▀" in s.text and s.style and s.style.color}


async def opened(app: ChatApp, pilot: Pilot[Any], *turns: Turn) -> None:
    chat = Chat(turns=list(turns))
    app.session.show(chat)
    app.main.transcript.open(chat)
    await pilot.pause(0.1)


async def test_a_picture_stands_under_the_line_about_it_and_is_no_text(tmp_path: Path) -> None:
    Image.new("RGB", (64, 48), "#12ab34").save(tmp_path / "green.png")
    async with running(size=(80, 24)) as (app, pilot, _):
        turn = pictured(tmp_path / "green.png")
        await opened(app, pilot, turn)
        await wait_until(pilot, lambda: "▀" in shown(app))
        assert colours(app) == {"#12ab34"}
        text = shown(app).split("\n")
        about = next(y for y, row in enumerate(text) if "└ image: green.png 64×48" in row)
        assert "64 tokens" in text[about]
        assert all("▀" in row for row in text[about + 1 : about + 1 + ROWS])
        assert "a picture" in text[about + 2 + ROWS]
        app.screen.selections = {app.main.transcript: Selection(None, None)}
        copied = app.screen.get_selected_text()
        assert copied is not None
        assert "▀" not in copied
        assert copied.endswith("64 tokens\n\na picture")
        app.screen.clear_selection()
        for size in ((60, 20), (120, 36)):
            await pilot.resize_terminal(*size)
            await wait_until(pilot, lambda: "▀" in shown(app) and "a picture" in shown(app))
        entry = app.main.transcript.column.of(turn)
        assert entry is not None
        app.screen.selections = {app.main.transcript: Selection(Offset(PAD, entry.key(1)), Offset(PAD, entry.key(4)))}
        await pilot.pause()
        assert "▀" in shown(app)


async def test_pictures_of_a_chat_that_is_there_from_the_start(tmp_path: Path) -> None:
    Image.new("RGB", (64, 48), "#12ab34").save(tmp_path / "green.png")
    async with running(size=(80, 24)) as (app, pilot, _):
        assert app.library.store is not None
        chat = Chat(turns=[pictured(tmp_path / "green.png")])
        app.library.store.save(chat, chat.turns[0])
        app.library.store.settle()
    async with running(size=(80, 24), continue_last=True) as (app, pilot, _):
        await wait_until(pilot, lambda: "▀" in shown(app))


async def test_a_picture_that_comes_moves_nothing_in_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (64, 48), "#12ab34").save(tmp_path / "green.png")
    real = Thumbs.read

    def late(self: Thumbs, *args: Any) -> Any:
        time.sleep(0.3)
        return real(self, *args)

    monkeypatch.setattr(Thumbs, "read", late)
    async with running(size=(80, 24)) as (app, pilot, _):
        after = []
        for n in range(30):
            turn = Turn(f"question {n}")
            turn.answer.text, turn.answer.prov, turn.answer.status = f"answer {n}", bytearray(9), Status.DONE
            after.append(turn)
        first = pictured(tmp_path / "green.png")
        await opened(app, pilot, first, *after)
        entry = app.main.transcript.column.of(first)
        assert entry is not None
        app.main.transcript.scroll_to(y=entry.rows + 3, animate=False)
        await pilot.pause()
        before, rows = shown(app), entry.rows
        assert "question 1" in before
        await wait_until(pilot, lambda: entry.rows == rows + ROWS)
        await pilot.pause()
        assert view(shown(app)) == view(before)


def view(screen: str) -> list[str]:
    """Rows of the conversation without its scrollbar."""
    return [row[:78].rstrip() for row in screen.split("\n")[2:14]]


@pytest.mark.parametrize("why", ["setting", "no colour", "ansi theme", "another file", "gone"])
async def test_there_is_only_text_where_there_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    path = tmp_path / "green.png"
    Image.new("RGB", (64, 48), "#12ab34").save(path)
    turn = pictured(path)
    if why == "setting":
        from engine import paths

        paths.settings_file().parent.mkdir(parents=True, exist_ok=True)
        paths.settings_file().write_text("[app]\nthumbnails = false\n")
    elif why == "no colour":
        monkeypatch.setenv("NO_COLOR", "1")
    elif why == "another file":
        Image.new("RGB", (32, 48), "#ff0000").save(path)
    elif why == "gone":
        path.unlink()
    async with running(size=(80, 24)) as (app, pilot, _):
        if why == "ansi theme":
            app.theme = "ansi-dark"
        await opened(app, pilot, turn)
        await wait_until(pilot, lambda: "green.png 64×48" in shown(app))
        await pilot.pause(0.4)
        assert "▀" not in shown(app)


def gif(frames: int) -> bytes:
    out = io.BytesIO()
    Image.new("P", (8, 8)).save(out, "GIF")
    data = out.getvalue()
    frame = b"\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0"
    return data[:-1] + frame * frames + b";"


def test_harmful_files_cost_bounded_time_and_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what is decoded, not by the clock: nothing that is too large, and no file twice."""
    reads: list[Path] = []
    decoded: list[tuple[int, int]] = []
    load = ImageFile.ImageFile.load
    monkeypatch.setattr(
        "tui.widgets.transcript.thumbnails.read_picture", lambda path: (reads.append(path), read_picture(path))[1]
    )
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: (decoded.append(image.size), load(image))[1])
    whole = io.BytesIO()
    Image.effect_noise((200, 200), 50).save(whole, "PNG")
    bomb = io.BytesIO()
    Image.new("1", (9000, 9000)).save(bomb, "PNG")
    files = {
        "empty.png": b"", "broken.png": b"\x89PNG\r\n\x1a\nnothing", "cut.png": whole.getvalue()[:5000],
        "huge.png": bomb.getvalue(), "text.gif": b"GIF89a", "many.gif": gif(200_000),
    }  # fmt: skip
    thumbs = Thumbs()
    for name, data in files.items():
        path = tmp_path / name
        path.write_bytes(data)
        small = thumbs.read(f"@{path}", [f"{name} 8×8 · 1 KB"])
        assert small == (None,) or name == "many.gif"
        looked = len(reads)
        thumbs.read(f"@{path}", [f"{name} 8×8 · 1 KB"])
        assert len(reads) == looked, "a file is looked at once"
    assert decoded
    assert max(width * height for width, height in decoded) <= 200 * 200


def test_a_view_takes_pictures_for_some_of_its_lines() -> None:
    view = UserView("text", ("one.png 1×1 · 1 KB", "two.png 2×2 · 1 KB"))
    bare = view.rows(60)
    assert view.show_thumbs((None, Image.new("RGB", (4, 4))))
    assert view.rows(60) == bare + ROWS
    assert not view.show_thumbs((None, Image.new("RGB", (4, 4))))
    view.show_images(("one.png 1×1 · 1 KB",))
    assert view.rows(60) == bare - 1
