"""Text between a beginning and an end, by the fill-in-the-middle tokens of those vocabularies that have them."""

from __future__ import annotations

from engine.chat.tokenizer import Tokenizer
from server.errors import bad

_MARKS = (
    ("<|fim_prefix|>", "{prefix}", "<|fim_suffix|>", "{suffix}", "<|fim_middle|>"),
    ("<fim_prefix>", "{prefix}", "<fim_suffix>", "{suffix}", "<fim_middle>"),
    ("<fim-prefix>", "{prefix}", "<fim-suffix>", "{suffix}", "<fim-middle>"),
    (
        "<\uff5cfim\u2581begin\uff5c>",
        "{prefix}",
        "<\uff5cfim\u2581hole\uff5c>",
        "{suffix}",
        "<\uff5cfim\u2581end\uff5c>",
    ),
    ("\u2581<PRE>", "{prefix}", "\u2581<SUF>", "{suffix}", "\u2581<MID>"),
    ("[SUFFIX]", "{suffix}", "[PREFIX]", "{prefix}"),
)
"""Each in the order in which its models were trained."""


def infill(tokenizer: Tokenizer, prefix: str, suffix: str) -> list[int]:
    """Token ids of the request to write what stands between the two."""
    for marks in _MARKS:
        ids = {mark: tokenizer.token(mark) for mark in marks if not mark.startswith("{")}
        if None in ids.values():
            continue
        out: list[int] = []
        for part in marks:
            mark = ids.get(part)
            text = prefix if part == "{prefix}" else suffix
            out += [mark] if mark is not None else tokenizer.encode(text)
        return out
    raise bad(
        "suffix: the model has no fill-in-the-middle tokens; put the text around the gap into the prompt.", "suffix"
    )
