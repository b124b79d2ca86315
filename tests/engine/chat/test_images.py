"""Picture files of every odd kind become upright RGB pixels with a content key, or a sentence."""

from __future__ import annotations

import base64
import io
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from PIL import Image

from engine.chat import images
from engine.chat.images import attached, check_pictures, looks_like_picture, read_picture
from engine.errors import ImageUnsupported, PictureUnreadable


def encoded(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def test_plain_file(tmp_path: Path) -> None:
    path = tmp_path / "red dot.png"
    path.write_bytes(encoded(Image.new("RGB", (3, 2), "red")))
    picture = read_picture(path)
    assert (picture.name, picture.width, picture.height, picture.note) == ("red dot.png", 3, 2, "")
    assert picture.image.getpixel((0, 0)) == (255, 0, 0)
    assert picture.nbytes == path.stat().st_size


def test_key_is_the_content_and_not_the_name(tmp_path: Path) -> None:
    """A file overwritten between two questions is a new picture, a copy under another name is the same (O61)."""
    first, copy = tmp_path / "a.png", tmp_path / "b.png"
    first.write_bytes(encoded(Image.new("RGB", (4, 4), "red")))
    copy.write_bytes(first.read_bytes())
    before = read_picture(first).key
    assert read_picture(copy).key == before
    url = "data:image/png;base64," + base64.b64encode(first.read_bytes()).decode()
    assert read_picture(url).key == before
    first.write_bytes(encoded(Image.new("RGB", (4, 4), "blue")))
    assert read_picture(first).key != before


def test_same_pixels_in_another_shape_are_another_picture() -> None:
    wide, tall = Image.new("RGB", (4, 2), "red"), Image.new("RGB", (2, 4), "red")
    assert read_picture(encoded(wide)).key != read_picture(encoded(tall)).key


def test_exif_rotation_is_applied() -> None:
    image = Image.new("RGB", (4, 2), "white")
    image.putpixel((0, 0), (255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = read_picture(encoded(image, exif=exif.tobytes()))
    assert (picture.width, picture.height, picture.note) == (2, 4, "turned upright")
    assert picture.image.getpixel((1, 0)) == (255, 0, 0)


def test_transparency_lies_on_white() -> None:
    picture = read_picture(encoded(Image.new("RGBA", (2, 2), (0, 0, 0, 0))))
    assert picture.image.mode == "RGB"
    assert picture.image.getpixel((0, 0)) == (255, 255, 255)
    assert picture.note == "transparency on white"


def test_palette_with_a_transparent_colour() -> None:
    image = Image.new("P", (2, 2), 0)
    image.putpalette([0, 0, 0, 255, 0, 0])
    picture = read_picture(encoded(image, transparency=0))
    assert picture.image.getpixel((0, 0)) == (255, 255, 255)


def test_first_frame_of_an_animation() -> None:
    frames = [Image.new("RGB", (2, 2), c) for c in ("red", "green", "blue")]
    picture = read_picture(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert picture.image.getpixel((0, 0)) == (255, 0, 0)
    assert picture.note == "first of 3 frames"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_png_modes(mode: str) -> None:
    assert read_picture(encoded(Image.new(mode, (5, 3)))).image.mode == "RGB"


def test_sixteen_bit_grey_is_scaled() -> None:
    image = Image.new("I;16", (2, 1))
    image.putpixel((0, 0), 65535)
    image.putpixel((1, 0), 32768)
    picture = read_picture(encoded(image))
    assert picture.image.getpixel((0, 0)) == (255, 255, 255)
    grey: Any = picture.image.getpixel((1, 0))
    assert grey[0] == pytest.approx(127, abs=1)


def test_cmyk_jpeg() -> None:
    assert read_picture(encoded(Image.new("CMYK", (8, 8)), "JPEG")).image.mode == "RGB"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"hello", "not a picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture"),
        (b"%PDF-1.7", "not a picture"),
    ],
)
def test_what_is_no_picture(data: bytes, words: str) -> None:
    with pytest.raises(PictureUnreadable, match=words):
        read_picture(data)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
def test_truncated_files(format: str) -> None:
    """Cut anywhere, a file is refused in words or decoded, and never a traceback of another kind."""
    noise = Image.effect_noise((40, 40), 80).convert("RGB")
    whole = encoded(noise, format)
    refused = 0
    for cut in range(0, len(whole) - 1, max(1, len(whole) // 12)):
        try:
            read_picture(whole[:cut])
        except PictureUnreadable:
            refused += 1
    assert refused >= 2


def test_too_many_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 1_000_000)
    with pytest.raises(PictureUnreadable, match="2000x1000 pixels"):
        read_picture(encoded(Image.new("1", (2000, 1000))))


def test_a_decompression_bomb_is_refused_by_its_header() -> None:
    whole = bytearray(encoded(Image.new("1", (8, 8))))
    whole[16:24] = (60_000).to_bytes(4, "big") * 2
    import zlib

    whole[29:33] = zlib.crc32(bytes(whole[12:29])).to_bytes(4, "big")
    with pytest.raises(PictureUnreadable, match="pixels"):
        read_picture(bytes(whole))


def test_too_many_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(images, "MAX_BYTES", 10)
    path = tmp_path / "big.png"
    path.write_bytes(b"x" * 11)
    with pytest.raises(PictureUnreadable, match=r"big\.png has"):
        read_picture(path)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(PictureUnreadable, match="no file"):
        read_picture(tmp_path / "absent.png")
    with pytest.raises(PictureUnreadable, match="folder"):
        read_picture(tmp_path)


def test_nothing_is_fetched() -> None:
    with pytest.raises(PictureUnreadable, match="not fetched"):
        read_picture("https://example.com/a.png")


@pytest.mark.parametrize("url", ["data:image/png;base64", "data:image/png;base64,@@@@"])
def test_bad_data_urls(url: str) -> None:
    with pytest.raises(PictureUnreadable, match="data URL"):
        read_picture(url)


def test_pasted_paths(tmp_path: Path) -> None:
    path = tmp_path / "a b.PNG"
    path.write_bytes(b"x")
    assert looks_like_picture(str(path))
    assert looks_like_picture(f"'{path}'")
    assert not looks_like_picture(str(tmp_path))
    assert not looks_like_picture("what about a.png?")
    assert not looks_like_picture("x" * 5000 + ".png")


def test_a_text_model_refuses_by_name() -> None:
    picture = read_picture(encoded(Image.new("RGB", (2, 2))), "cat.png")
    with pytest.raises(ImageUnsupported, match=r"tiny reads text only.*cat\.png"):
        check_pictures("tiny", None, [picture])
    check_pictures("tiny", None, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what is @{0}?", ["what is ", 0, "?"]),
        ("what is @{0} here", ["what is ", 0, " here"]),
        ("@{0} @{0}", [0, " ", 0]),
        ("{0}", [0]),
        ("'{0}'", [0]),
        ("look:\n{0}\nwell?", ["look:\n", 0, "well?"]),
        ("file://{0}", [0]),
        ('see @"{1}" now', ["see ", 1, " now"]),
        ("{1}", [1]),
        ("{2}", [1]),
        ("@{2} x", [1, " x"]),
        ("{3}", [2]),
        ("'{0}' '{1}'\n", [0, 1]),
        ("{0} {2}", [0, 1]),
        ("{0} and {2}", ["{0} and {2}"]),
        ("{0} it's", ["{0} it's"]),
        ("{4}", [2]),
        ("mail me@{0}", ["mail me@{0}"]),
        ("@nobody and @/etc/passwd", ["@nobody and @/etc/passwd"]),
        ("", []),
        ("plain words\n", ["plain words\n"]),
    ],
)
def test_paths_in_a_message_become_pictures_in_their_places(
    tmp_path: Path, text: str, expected: list[str | int]
) -> None:
    files = (tmp_path / "a.png", tmp_path / "two words.png", tmp_path / "my cat's.png")
    for file in files:
        file.write_bytes(b"x")
    plain, spaced, quoted = (str(file) for file in files)
    names = (plain, spaced, spaced.replace(" ", "\\ "), shlex.quote(quoted), f"file://{quote(quoted)}")
    wanted = [e.format(*names) if isinstance(e, str) else files[e] for e in expected]
    assert attached(text.format(*names)) == wanted
