"""What a client is told when a request cannot be served.

One exception carries the status, the kind and a sentence; a dialect chooses the envelope. Knows no dialect.
"""

from __future__ import annotations

import re
from typing import Literal

from engine import errors as engine_errors

Kind = Literal[
    "invalid_request",
    "authentication",
    "permission",
    "not_found",
    "too_large",
    "timeout",
    "rate_limit",
    "overloaded",
    "unavailable",
    "server",
]

_STATUS: dict[Kind, int] = {
    "invalid_request": 400,
    "authentication": 401,
    "permission": 403,
    "not_found": 404,
    "too_large": 413,
    "timeout": 408,
    "rate_limit": 429,
    "overloaded": 529,
    "unavailable": 503,
    "server": 500,
}


class ApiError(Exception):
    """A refusal with its HTTP status. `param` is the JSON path of the offending field."""

    def __init__(
        self,
        message: str,
        kind: Kind = "invalid_request",
        *,
        status: int | None = None,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind: Kind = kind
        self.status = _STATUS[kind] if status is None else status
        self.param = param
        self.code = code
        self.headers = headers or {}


def bad(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(message, param=param, code=code)


def too_long(tokens: int, limit: int) -> ApiError:
    """The wording and the code that agents look for before they compact a conversation."""
    return ApiError(f"prompt is too long: {tokens} tokens > {limit} maximum", code="context_length_exceeded")


_NAMES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "None": "null",
}


def from_validation(text: str) -> ApiError:
    """A decoder's complaint in the words of JSON rather than of Python."""
    match = re.search(r" - at (?:`\w+` in )?`\$?\.?([^`]*)`", text)
    path = match[1] if match else None
    sentence = text[: match.start()] if match else text
    sentence = re.sub(r"`(\w+)`", lambda m: f"`{_NAMES.get(m[1], m[1])}`", sentence)
    return bad(f"{path}: {sentence}." if path else f"The body is not a valid request: {sentence}.", param=path)


def from_engine(error: BaseException) -> ApiError:
    """Map an engine failure to a status; what is nobody's fault but ours becomes a 500 without its class name."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, engine_errors.ContextOverflow):
        return too_long(error.tokens, error.limit) if error.limit else bad(str(error), code="context_length_exceeded")
    if isinstance(error, engine_errors.UnknownModel):
        return ApiError(str(error), "not_found", code="model_not_found")
    if isinstance(error, engine_errors.RequestTooLarge):
        return ApiError(str(error), "too_large", param="max_tokens", code="request_too_large")
    if isinstance(error, engine_errors.UsageError):
        return bad(str(error))
    if isinstance(error, engine_errors.EngineClosed | engine_errors.MemoryShort):
        return ApiError(str(error), "unavailable", headers={"retry-after": "5"})
    if isinstance(error, engine_errors.DsparkError):
        return ApiError(str(error), "server")
    return ApiError("The request failed inside the server; its log has the details.", "server")
