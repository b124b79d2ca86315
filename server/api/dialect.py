"""What a dialect is: a package beside this file exports one `DIALECT`, and a row in dialects.py makes it served.

Everything outside `server/api/<dialect>/` knows a dialect only by these fields: no name of one and no path of one
stands anywhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from server.errors import ApiError
from server.generation.response_store import Store
from server.types import Answer, Chat, Delta, fresh_id


@dataclass(frozen=True, slots=True)
class Context:
    """What of the server a dialect may look into while it reads a request."""

    store: Store


@dataclass(frozen=True, slots=True)
class Identity:
    """What stays the same over all frames of one answer."""

    id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def fresh(cls, prefix: str, model: str) -> Identity:
        return cls(fresh_id(prefix), model)


class Stream(Protocol):
    """Renders deltas as they come. Every method returns complete frames."""

    def open(self) -> list[bytes]:
        """Before anything is known."""
        ...

    def frames(self, choice: int, delta: Delta) -> list[bytes]: ...

    def heartbeat(self) -> list[bytes]:
        """Something legal to say in silence, which resets the client's idle timer."""
        ...

    def broken(self, error: ApiError) -> list[bytes]:
        """The in-stream error; nothing follows."""
        ...

    def close(self) -> list[bytes]:
        """After the last choice is done."""
        ...


@dataclass(frozen=True, slots=True)
class Counter:
    """A route that tells how many tokens a request's prompt has."""

    path: str
    parse: Callable[[bytes, Context], Chat]
    answer: Callable[[int], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Side:
    """A route without a body that generates nothing."""

    path: str
    answers: Mapping[str, Callable[[Context, Mapping[str, str]], dict[str, Any]]]
    """By HTTP method: (context, parameters of the path) -> body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One API: pure functions from bodies to a `Chat` and from deltas to bodies, and the words that it insists on."""

    path: str
    """Where it generates; served with /v1 in front and without."""
    parse: Callable[[bytes, Context], Chat]
    answer: Callable[[Chat, list[Answer], Identity], dict[str, Any]]
    stream: Callable[[Chat, Identity], Stream]
    error: Callable[[ApiError], dict[str, Any]]
    """The body of a refusal, for every path below `path`."""
    id_prefix: str
    call_prefix: str = "call_"
    """Begins the ids of tool calls."""
    key_header: str = "authorization"
    """Where its clients send the API key; as `Bearer` in authorization, bare in any other header."""
    news: Literal["first", "none"] = "none"
    """What a stream shows of a prompt being read although nobody asked for progress."""
    counter: Counter | None = None
    sides: tuple[Side, ...] = ()

    def read(self, body: bytes, context: Context) -> Chat:
        """The request, with what the rest of the server needs to know of its dialect."""
        chat = self.parse(body, context)
        chat.call_prefix = self.call_prefix
        chat.news = "all" if chat.progress else self.news if chat.stream else "none"
        return chat

    def owns(self, path: str) -> bool:
        bare = path.removeprefix("/v1")
        return bare == self.path or bare.startswith(self.path + "/")
