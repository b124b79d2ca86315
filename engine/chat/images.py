"""Pictures: from a file, bytes or a data URL to plain RGB pixels with a name, a content key and a token cost.

Everything odd about picture files ends here: rotation marks, transparency, animation, 16-bit and CMYK pixels, truncated
and hostile files. Knows no model; how a model sees a picture is in its family (`engine/targets`), behind `Eye`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import re
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import unquote, unquote_to_bytes

from engine.errors import ImageUnsupported, PictureUnreadable, human_bytes
from engine.types import Media

if TYPE_CHECKING:
    import mlx.core as mx
    from PIL import Image

MAX_BYTES = 64 * 2**20
MAX_PIXELS = 64_000_000
"""More than any camera phone writes; a decompressed picture of this size takes 192 MB."""
EXTENSIONS = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".avif"})
"""For completion and for recognising pasted paths; loading goes by content."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One decoded picture."""

    name: str
    image: Image.Image = field(repr=False)
    """Mode RGB, upright."""
    key: str
    """Hash of what a model sees: size and pixels. The same picture under two names has one key."""
    nbytes: int
    """Size of the file."""
    note: str = ""
    """What was done to it, for people: 'first of 12 frames, transparency on white'."""

    @property
    def width(self) -> int:
        return self.image.width

    @property
    def height(self) -> int:
        return self.image.height


class Prompt(NamedTuple):
    """A prompt with pictures, ready for a `Request`."""

    ids: list[int]
    """With one id for every row; a picture's rows carry its placeholder id."""
    embeddings: mx.array | None
    """[1, T, H], or None without pictures."""
    media: tuple[Media, ...]
    """The pictures, in order, where they stand in `ids`."""
    places: tuple[tuple[int, int], ...] = ()
    """For each picture, the index of its placeholder in the ids that were given, and the rows that it became."""

    def moved(self, boundaries: Sequence[int]) -> tuple[int, ...]:
        """Lengths of the given ids, as lengths of `ids`."""
        return tuple(b + sum(rows - 1 for at, rows in self.places if at < b) for b in boundaries)


class Eye(Protocol):
    """How one loaded model sees pictures. Made by its family, on the model thread."""

    def tokens(self, picture: Picture) -> int:
        """Rows that the picture takes in a prompt. Any thread may ask, and no pixel is looked at.

        Raises:
            ImageUnsupported: what sees is not installed.
        """
        ...

    def prompt(self, ids: Sequence[int], pictures: Sequence[Picture]) -> Prompt:
        """Replace the i-th placeholder in `ids` by the rows of the i-th picture.

        Raises:
            ImageUnsupported: when placeholders and pictures do not match in number.
        """
        ...


def read_picture(source: str | Path | bytes, name: str = "") -> Picture:
    """Decode a picture from a path, bytes, or a `data:` URL.

    Raises:
        PictureUnreadable: with the reason, when it is not a picture that can be used.
    """
    data, label = _bytes_of(source)
    label = name or label
    if not data:
        raise PictureUnreadable(f"{label} is empty: choose another picture.")
    if len(data) > MAX_BYTES:
        raise PictureUnreadable(
            f"{label} has {human_bytes(len(data))}, the limit is {human_bytes(MAX_BYTES)}: shrink it."
        )
    image, note = _decode(data, label)
    digest = hashlib.sha256(f"{image.width}x{image.height}:".encode() + image.tobytes()).hexdigest()
    return Picture(label, image, digest[:32], len(data), note)


_MENTION = re.compile(r"""(?<!\S)@(?:"([^"\n]+)"|'([^'\n]+)'|((?:\\.|[^\s\\])+))""")


def looks_like_picture(text: str) -> bool:
    """Whether a typed or pasted word is the path of an existing picture file."""
    return _existing(text) is not None


def picture_path(word: str) -> Path:
    """The file that a word names, in any of the ways that a shell or a drop onto the terminal writes it; as written
    when there is none."""
    found = _dropped(word)
    return found[0] if len(found) == 1 else Path(word.strip().strip("'\"")).expanduser()


def attached(text: str) -> list[str | Path]:
    """A message in parts: `@path` and lines that are nothing but the path of a picture (pasted, or dropped onto the
    terminal) become paths, in their places; what names no existing picture file stays text."""
    parts: list[str | Path] = []
    for line in text.splitlines(keepends=True):
        if whole := _dropped(line):
            parts += whole
            continue
        begin = 0
        for match in _MENTION.finditer(line):
            word = next(g for g in match.groups() if g)
            spare = 0 if match[3] is None else len(word) - len(word.rstrip(".,;:!?)"))
            for left_out in (0, spare):
                path = _existing(word[: len(word) - left_out])
                if path is not None:
                    parts += [line[begin : match.start()], path]
                    begin = match.end() - left_out
                    break
        parts.append(line[begin:])
    joined: list[str | Path] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part:
            joined.append(part)
    return joined


def _dropped(line: str) -> list[Path]:
    """The pictures that a line is made of, as terminals write files that are dropped onto them; [] for other lines."""
    one = _existing(line)
    if one is not None:
        return [one]
    try:
        words = shlex.split(line, comments=False)
    except ValueError:
        return []
    paths = [_existing(word) for word in words]
    return [] if None in paths else [path for path in paths if path is not None]


def _existing(word: str) -> Path | None:
    """The picture file that a word names: quoted, with escaped spaces, or as a file URL."""
    word = word.strip()
    if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"":
        word = word[1:-1]
    if word.startswith("file://"):
        word = unquote(word.removeprefix("file://"))
    for spelt in (word, re.sub(r"\\(.)", r"\1", word)):
        path = Path(spelt).expanduser()
        try:
            if path.suffix.lower() in EXTENSIONS and path.is_file():
                return path
        except (OSError, ValueError):
            return None
    return None


def check_pictures(model: str, eye: Eye | None, pictures: Sequence[Picture]) -> None:
    """Raises ImageUnsupported when there are pictures and the model cannot see."""
    if pictures and eye is None:
        raise ImageUnsupported(
            f"{model} reads text only: choose a model that sees pictures, or leave {pictures[0].name} out."
        )


def described(picture: Picture, rows: int = 0) -> str:
    """`cat.png 1024×768 · 812 kB · 1,196 tokens · first of 3 frames`."""
    parts = [f"{picture.name} {picture.width}×{picture.height}", human_bytes(max(1000, picture.nbytes))]
    return " · ".join([*parts, *([f"{rows:,} tokens"] if rows else []), *([picture.note] if picture.note else [])])


def _bytes_of(source: str | Path | bytes) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        return source, "The picture"
    text = str(source)
    if text.startswith("data:"):
        return _data_url(text), "The picture"
    if text.startswith(("http://", "https://")):
        raise PictureUnreadable("Pictures are not fetched from the network: send the file's content as a data URL.")
    path = Path(text).expanduser()
    try:
        if path.is_dir():
            raise PictureUnreadable(f"{path} is a folder: name a picture in it.")
        if path.stat().st_size > MAX_BYTES:
            size = human_bytes(path.stat().st_size)
            raise PictureUnreadable(f"{path.name} has {size}, the limit is {human_bytes(MAX_BYTES)}: shrink it.")
        return path.read_bytes(), path.name
    except FileNotFoundError:
        raise PictureUnreadable(f"There is no file {path}: check the path.") from None
    except (OSError, ValueError) as error:
        raise PictureUnreadable(f"{path.name} cannot be read ({error}): check its permissions.") from None


def _data_url(text: str) -> bytes:
    head, comma, body = text.partition(",")
    if not comma:
        raise PictureUnreadable("The data URL of a picture has no comma: send data:image/png;base64,...")
    if not head.endswith(";base64"):
        return unquote_to_bytes(body)
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):
        raise PictureUnreadable("The data URL of a picture is not valid base64: send its bytes encoded.") from None


def _decode(data: bytes, label: str) -> tuple[Image.Image, str]:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data))
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise PictureUnreadable(
                    f"{label} has {width}x{height} pixels, the limit is {MAX_PIXELS // 10**6} million: shrink it."
                )
            notes: list[str] = []
            frames = int(getattr(image, "n_frames", 1))
            if frames > 1:
                image.seek(0)
                notes.append(f"first of {frames} frames")
            upright = ImageOps.exif_transpose(image)
            if upright.size != image.size:
                notes.append("turned upright")
            return _to_rgb(upright, notes), ", ".join(notes)
    except UnidentifiedImageError:
        raise PictureUnreadable(f"{label} is not a picture that can be read: use PNG, JPEG, WebP or GIF.") from None
    except Image.DecompressionBombError:
        raise PictureUnreadable(f"{label} has more than {MAX_PIXELS // 10**6} million pixels: shrink it.") from None
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, MemoryError) as error:
        # Pillow's decoders raise all of these on damaged files.
        raise PictureUnreadable(f"{label} is damaged ({error}): save it again.") from None


def _to_rgb(image: Image.Image, notes: list[str]) -> Image.Image:
    from PIL import Image

    if image.mode.startswith(("I", "F")):
        # Pillow clips 16-bit grey to 8 bits instead of scaling it.
        low, high = (float(x) for x in image.convert("F").getextrema())  # type: ignore[misc]  # one band gives one pair
        scale = 255.0 / max(high, 255.0) if low >= 0 else 1.0
        return image.convert("F").point(lambda x: x * scale).convert("L").convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema() != (255, 255):
            notes.append("transparency on white")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")
