"""A conversation as a request: the one place where messages, pictures and settings become what an engine is asked.

What nobody decided is what the checkpoint recommends. Knows no screen, no dialect and no loaded weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from engine.chat.images import Prompt as Seen
from engine.chat.stop_scope import AnswerText
from engine.config import Config
from engine.types import Request

if TYPE_CHECKING:
    from engine.chat.images import Picture
    from engine.chat.messages import Message
    from engine.chat.reasoning import ThinkSplitter


class Asked(Protocol):
    """What is needed of an engine."""

    @property
    def spec(self) -> Any: ...
    @property
    def format(self) -> Any: ...
    @property
    def generation(self) -> Mapping[str, Any]: ...
    def see(self, ids: Sequence[int], pictures: Sequence[Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Built:
    """A request, and what of its making is of use later."""

    request: Request
    splitter: ThinkSplitter
    """For the text that follows."""
    rows: tuple[int, ...] = ()
    """Positions that each picture takes."""


def build_request(
    engine: Asked,
    messages: Sequence[Message],
    config: Config,
    pictures: Sequence[Picture] = (),
    *,
    template: Mapping[str, Any] | None = None,
    **more: Any,
) -> Built:
    """The request for the next turn of a conversation. `messages` has one placeholder for each picture.

    template: further arguments of `ChatFormat.prompt`, such as tools. more: fields of `Request` that the settings do
    not decide.
    """
    prompt = engine.format.prompt(messages, thinking=config.thinking, effort=config.effort, **(template or {}))
    seen: Seen = engine.see(prompt.ids, pictures) if pictures else Seen(prompt.ids, None, ())
    said = [str(messages[-1]["content"])] if (template or {}).get("continue_final") else []
    request = continue_ids(
        engine,
        seen.ids,
        config,
        **{
            "boundaries": seen.moved(prompt.boundaries),
            "embeddings": seen.embeddings,
            "media": seen.media,
            "stop_scope": lambda: AnswerText(engine.format.splitter(prompt.ids, *said)),
            **more,
        },
    )
    return Built(request, engine.format.splitter(prompt.ids, *said), tuple(rows for _, rows in seen.places))


def continue_ids(engine: Asked, ids: Sequence[int], config: Config, **more: Any) -> Request:
    """The request to go on after these token ids."""
    config = config.under(engine.generation)
    if config.max_tokens < 0:
        more = {"max_tokens": max(1, engine.spec.context - len(ids)), **more}
    return config.request(ids, **more)
