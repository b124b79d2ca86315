"""Syntax classes of finished code. Pygments is imported at the first block that names a language."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

LIMIT = 60_000
"""Longer code stays plain: colour is not worth a pause."""

# Most specific first; the names are the theme's `syntax-*` variables.
_CLASSES = (
    ("Comment", "syn-comment"),
    ("Literal.String", "syn-string"),
    ("Literal.Number", "syn-number"),
    ("Keyword", "syn-keyword"),
    ("Operator.Word", "syn-keyword"),
    ("Operator", "syn-operator"),
    ("Name.Function", "syn-function"),
    ("Name.Class", "syn-class"),
    ("Name.Tag", "syn-keyword"),
    ("Name.Attribute", "syn-function"),
    ("Name.Decorator", "syn-function"),
    ("Name.Builtin", "syn-builtin"),
    ("Name.Exception", "syn-class"),
    ("Generic.Deleted", "syn-deleted"),
    ("Generic.Inserted", "syn-string"),
)


@lru_cache(maxsize=512)
def _class_of(kind: str) -> str:
    return next((name for prefix, name in _CLASSES if kind == prefix or kind.startswith(prefix + ".")), "")


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def spans(code: str, language: str) -> list[tuple[int, int, str]]:
    """(start, end, style name) covering `code`; one plain span when the language is unknown."""
    lexer = _lexer(language.lower()) if language and len(code) <= LIMIT else None
    if lexer is None:
        return [(0, len(code), "")]
    found: list[tuple[int, int, str]] = []
    at = 0
    for start, kind, value in lexer.get_tokens_unprocessed(code):
        if start > at:
            found.append((at, start, ""))
        end = min(start + len(value), len(code))
        if end > at:
            found.append((max(start, at), end, _class_of(str(kind).removeprefix("Token."))))
            at = end
    if at < len(code):
        found.append((at, len(code), ""))
    return found
