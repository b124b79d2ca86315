"""OpenAI Responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from server.api.base import openai_error
from server.api.dialect import Context, Counter, Dialect, Side
from server.api.responses.answer import answer
from server.api.responses.request import parse
from server.api.responses.stream import ResponseStream


def _get(context: Context, path: Mapping[str, str]) -> dict[str, Any]:
    return context.store.get(path["id"])


def _delete(context: Context, path: Mapping[str, str]) -> dict[str, Any]:
    context.store.drop(path["id"])
    return {"id": path["id"], "object": "response", "deleted": True}


DIALECT = Dialect(
    path="/responses",
    parse=parse,
    answer=answer,
    stream=ResponseStream,
    error=openai_error,
    id_prefix="resp_",
    counter=Counter(
        "/responses/input_tokens", parse, lambda count: {"object": "response.input_tokens", "input_tokens": count}
    ),
    sides=(Side("/responses/{id}", {"GET": _get, "DELETE": _delete}),),
)
