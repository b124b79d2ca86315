"""What the dialects share: decoding a body, and the usage and the errors of the OpenAI ones."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, get_type_hints

import msgspec

from engine.chat.template import EFFORTS
from engine.types import Sampling, Usage
from engine.types.parameters import about, declared
from server.errors import ApiError, Kind, bad, from_validation
from server.types import Answer

T = TypeVar("T")


def decode(body: bytes, kind: type[T], api: str | None = None) -> T:
    """A typed request from JSON. Unknown fields are ignored, wrong types are a 400 that names the path.

    api: the request also has the fields of `Sampling` that are declared for this API; see `server.types.sampling_of`.
    """
    try:
        return msgspec.json.decode(body, type=kind if api is None else _sampled(kind, api))
    except msgspec.ValidationError as error:
        raise from_validation(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError("The body is not valid JSON.") from error


@cache
def _sampled(kind: Any, api: str) -> Any:
    """A request struct with the sampling fields of an API."""
    types = get_type_hints(Sampling)
    named = [(name, setting) for setting in declared(Sampling) for name in about(setting).names_in(api)]
    fields = [(name, types[setting.name] | None, None) for name, setting in named]
    return msgspec.defstruct(kind.__name__, fields, bases=(kind,), kw_only=True)


def effort_of(value: str | None, param: str) -> str | None:
    """A reasoning effort that some template could take."""
    if value is not None and value not in EFFORTS:
        raise bad(f"{param}: '{value}' is none of {', '.join(EFFORTS)}.", param)
    return value


def add_usage(answers: list[Answer], each: int = 0) -> Usage:
    return sum_usage([a.done.usage if a.done is not None else Usage() for a in answers], each)


def sum_usage(parts: list[Usage], each: int = 0) -> Usage:
    """One usage for all choices. each: how many of them share a prompt, which counts once; 0 is all of them."""
    if not parts:
        return Usage()
    first, read = parts[0], parts[:: each or len(parts)]
    return Usage(
        prompt=sum(u.prompt for u in read),
        completion=sum(u.completion for u in parts),
        cached=sum(u.cached for u in read),
        drafted=sum(u.drafted for u in parts),
        accepted=sum(u.accepted for u in parts),
        rounds=sum(u.rounds for u in parts),
        prefill_ms=first.prefill_ms,
        decode_ms=max(u.decode_ms for u in parts),
    )


def reasoning_tokens(answers: list[Answer]) -> int:
    return sum(a.done.reasoning_tokens for a in answers if a.done is not None)


def openai_usage(usage: Usage, reasoning: int = 0) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {
            "reasoning_tokens": reasoning,
            "accepted_prediction_tokens": usage.accepted,
            "rejected_prediction_tokens": usage.drafted - usage.accepted,
        },
    }


_ERRORS: dict[Kind, str] = {
    "invalid_request": "invalid_request_error",
    "authentication": "authentication_error",
    "permission": "permission_error",
    "not_found": "not_found_error",
    "too_large": "invalid_request_error",
    "timeout": "timeout_error",
    "rate_limit": "rate_limit_error",
    "overloaded": "service_unavailable",
    "unavailable": "service_unavailable",
    "server": "server_error",
}


def openai_error(error: ApiError) -> dict[str, Any]:
    kind = _ERRORS[error.kind]
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}
