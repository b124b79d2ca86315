"""The JSON files of a checkpoint. Knows no field of any."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

from engine.errors import WeightsDamaged

MOST = 1 << 26
"""Bytes; the index of the largest published checkpoint is a tenth of it."""


def read_object(path: Path, what: str = "model") -> dict[str, Any]:
    """A JSON object, {} where there is no file. what: for the message, what has to be fetched again.

    Raises:
        WeightsDamaged: it is no such thing, or not readable by the libraries that read it after us.
    """
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > MOST:
            raise ValueError("it is larger than any such file")
        data = path.read_bytes()
        if data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise WeightsDamaged(f"{path} begins with a byte order mark: save it as UTF-8 without one.")
        value = json.loads(data.decode("utf-8"), object_hook=_decoded)
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise WeightsDamaged(f"{path} cannot be read ({reason}). Delete it and download the {what} again.") from error
    return value


def _decoded(value: dict[str, Any]) -> Any:
    """transformers 5 writes infinities as {"__float__": "Infinity"}, which mlx-lm does not read."""
    return float(value["__float__"]) if set(value) == {"__float__"} else value
