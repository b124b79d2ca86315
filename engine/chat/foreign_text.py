"""Text and JSON that somebody else wrote, as text that can be stored, sent and tokenised: never an exception.

The rule of every way in (request bodies, files, arguments of calls, stores): what is no Unicode becomes U+FFFD. Half a
surrogate pair is what comes of text that was cut in the middle of an emoji; bytes that are no UTF-8 come from pipes and
old files. Knows no message and no file.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

REPLACEMENT = "\ufffd"

_HALF = re.compile("[\ud800-\udfff]")
_ESCAPES = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.S
)
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def whole(text: str) -> str:
    """The text with pairs of surrogates as the characters they mean, and U+FFFD for each half that is left."""
    if text.isascii() or not _HALF.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def decoded(data: bytes) -> str:
    """Bytes as text: by their byte order mark, else as UTF-8."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    return data.decode("utf-8", "replace")


def whole_json(text: str) -> str:
    """JSON in which no escape stands for half a pair."""
    if "\\ud" not in text and "\\uD" not in text:
        return text
    return _ESCAPES.sub(lambda m: m[0] if m[2] or not (m[1] or m[3]) else "\\ufffd", text)


def json_bytes(data: bytes) -> bytes:
    """A JSON body as UTF-8 without halves of pairs; the same object when it is so already."""
    marked = data.startswith(tuple(mark for mark, _ in _MARKS))
    if not marked and b"\\ud" not in data and b"\\uD" not in data and _is_utf8(data):
        return data
    return whole_json(decoded(data)).encode()


def read_json(text: str | bytes) -> Any:
    """What `json.loads` says, in whole characters.

    Raises:
        ValueError: it is not JSON, or nested beyond reason.
    """
    try:
        return json.loads(whole_json(whole(decoded(text) if isinstance(text, bytes) else text)))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False
