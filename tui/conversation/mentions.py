"""Text files named in a message as `@path` are sent with it, each in a fence of its own. Pictures are not its business.

What names no file stays as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from engine.chat.images import EXTENSIONS
from engine.chat.terminal_safe import clean, one_line
from engine.errors import UsageError

MAX_BYTES = 256 * 1024
"""More than most context windows hold."""
_MENTION = re.compile(r"""(?<!\S)@(?:"([^"\n]+)"|'([^'\n]+)'|((?:\\.|[^\s\\])+))""")


def found(text: str) -> Iterator[tuple[int, int, Path]]:
    """(start, end, file) of each mention of a file that is no picture."""
    for match in _MENTION.finditer(text):
        word = next(group for group in match.groups() if group)
        spare = 0 if match[3] is None else len(word) - len(word.rstrip(".,;:!?)"))
        for left_out in (0, spare):
            path = _file(word[: len(word) - left_out], bare=match[3] is not None)
            if path is not None:
                yield match.start(), match.end() - left_out, path
                break


def expand(text: str) -> str:
    """The message with each named file behind it.

    Raises:
        UsageError: a file that is no text, too large, or not readable.
    """
    parts: list[str] = []
    blocks: dict[Path, str] = {}
    at = 0
    for start, end, path in found(text):
        name = one_line(str(path))
        parts += [text[at:start], f"`{name}`"]
        if path not in blocks:
            blocks[path] = fenced(name, read(path))
        at = end
    parts.append(text[at:])
    return "\n\n".join(["".join(parts), *blocks.values()])


def read(path: Path) -> str:
    """A text file's content, safe for a terminal.

    Raises:
        UsageError: with one sentence.
    """
    name = one_line(path.name)
    try:
        if path.stat().st_size > MAX_BYTES:
            size = path.stat().st_size / 1024
            raise UsageError(f"{name} has {size:,.0f} KB, and up to {MAX_BYTES // 1024} KB go into a message.")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}.") from error
    if b"\0" in data[:8192]:
        raise UsageError(f"{name} is no text, so it cannot go into a message.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return clean(text.replace("\r\n", "\n").replace("\r", "\n"))


def fenced(name: str, text: str) -> str:
    """A code block that nothing in `text` can close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    language = Path(name).suffix[1:]
    language = language if re.fullmatch(r"\w{1,12}", language) else ""
    return f"{name}:\n{fence}{language}\n{text.rstrip()}\n{fence}"


def _file(word: str, bare: bool) -> Path | None:
    spellings = (word, re.sub(r"\\(.)", r"\1", word)) if bare else (word,)
    for spelt in spellings:
        try:
            path = Path(spelt).expanduser()
            if path.suffix.lower() not in EXTENSIONS and path.is_file():
                return path
        except (OSError, ValueError, RuntimeError):
            return None
    return None
