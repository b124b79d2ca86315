"""The dialects that are served, and whose shape an error takes on a path that none of them owns."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from server.api import anthropic, chat_completions, completions, responses
from server.api.dialect import Dialect
from server.errors import ApiError

DIALECTS: tuple[Dialect, ...] = (
    chat_completions.DIALECT,
    completions.DIALECT,
    responses.DIALECT,
    anthropic.DIALECT,
)


def error_body(dialects: Sequence[Dialect], path: str, error: ApiError) -> bytes:
    """What the dialect of this path says for the error; elsewhere what the first one says."""
    owner = next((d for d in dialects if d.owns(path)), dialects[0])
    return msgspec.json.encode(owner.error(error))
