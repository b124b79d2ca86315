"""A `Chat` as a prompt and its constraints: templates, tools, formats, and where a constraint begins to hold.

Knows the engine's chat format and grammars; no dialect and no queue.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

from engine.chat.history import readable_calls, tools_as_text
from engine.chat.reasoning import closing
from engine.engine import Engine
from engine.errors import UsageError
from engine.sampling.structured_output import Gate, Grammars
from engine.sampling.thinking_budget import ReasoningLimit
from engine.types import Processor
from server.errors import bad
from server.tool_calls import FAMILIES, family_of
from server.tool_calls.base import ToolParser
from server.tool_calls.grammar import forced, taught
from server.types import Chat, Message, Tool

_grammars: weakref.WeakKeyDictionary[Engine, Grammars] = weakref.WeakKeyDictionary()
_grammars_lock = threading.Lock()


def conversation(engine: Engine, chat: Chat) -> tuple[list[Message], dict[str, Any]]:
    """Messages, and what else the template is given: tools, in its own way or taught by the system prompt."""
    messages: list[Message] = chat.messages
    tools: Sequence[Tool] = () if chat.choice.mode == "none" else chat.tools
    shapes: list[dict[str, Any]] | None = [t.template() for t in tools] or None
    if "tools" not in engine.format.source:
        shapes = None
        messages = tools_as_text([readable_calls(m) for m in messages])
        if tools:
            messages = _with_system(messages, taught(tools))
    template: dict[str, Any] = {"tools": shapes, "extra": chat.template_kwargs or None}
    if chat.final == "turn":
        template["add_generation_prompt"] = False
    elif chat.final == "continue" or (not chat.final and _begun(chat.messages)):
        if not _begun(chat.messages):
            raise bad("continue_final_message: the last message must be a text of the assistant.", "messages")
        template["continue_final"] = True
    return messages, template


def _begun(messages: Sequence[Message]) -> bool:
    """Whether the last message is an answer that has begun, and not what is left of one that was whole."""
    last = messages[-1] if messages else {}
    text = last.get("content")
    return last.get("role") == "assistant" and isinstance(text, str) and text != "" and not last.get("tool_calls")


def calls(chat: Chat) -> bool:
    """Whether the answer may hold calls."""
    return bool(chat.tools) and chat.choice.mode != "none"


def parser(engine: Engine, chat: Chat) -> ToolParser | None:
    """What finds the calls in one answer."""
    return FAMILIES[family_of(engine.format.source)](chat.tools, chat.call_prefix) if calls(chat) else None


def _with_system(messages: list[Message], text: str) -> list[Message]:
    first = messages[0] if messages else None
    if first is not None and first["role"] == "system" and isinstance(first["content"], str):
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


# Constraints ----------------------------------------------------------------------------------------------------------


def processors(engine: Engine, chat: Chat, prompt: Sequence[int]) -> tuple[Processor, ...]:
    """The request's constraint and its limit on reasoning, fresh for one sequence."""
    return (*_reasoning_limit(engine, chat, prompt), *_constraint(engine, chat, prompt))


def _reasoning_limit(engine: Engine, chat: Chat, prompt: Sequence[int]) -> tuple[Processor, ...]:
    form = engine.format
    if chat.thinking_budget is None or chat.prompt is not None or not form.style.closer:
        return ()
    # Nothing is forced behind the closer: a constraint may hold from there.
    ends = (form.style.closer, closing(form.style).rstrip())
    ids = [tuple(engine.tokenizer.encode(t, special=True)) for t in ends]
    opener = engine.tokenizer.token(form.style.opener.strip())
    inside = form.starts_thinking(prompt)
    return (ReasoningLimit(chat.thinking_budget, closer=ids[0], ending=ids[1], inside=inside, opener=opener),)


def _constraint(engine: Engine, chat: Chat, prompt: Sequence[int]) -> tuple[Processor, ...]:
    forced_call = chat.choice.mode in ("required", "named") and bool(chat.tools)
    if chat.format is None and not forced_call:
        return ()
    grammars = _grammars_of(engine)
    try:
        grammar = _forced(engine, chat, grammars) if forced_call else _format(chat, grammars)
    except UsageError as error:
        param = "tools" if chat.format is None or forced_call else chat.format.param
        raise bad(f"{param}: {error}", param) from error
    return (grammars.constraint(grammar, _gate(engine, chat, prompt)),)


def _forced(engine: Engine, chat: Chat, grammars: Grammars) -> str:
    tools = [t for t in chat.tools if chat.choice.mode == "required" or t.name == chat.choice.name]
    return grammars.lark(forced(family_of(engine.format.source), tools, engine.tokenizer.token))


def _format(chat: Chat, grammars: Grammars) -> str:
    assert chat.format is not None
    kind, value = chat.format.kind, chat.format.value
    if kind == "json":
        return grammars.json()
    if kind == "schema":
        return grammars.schema(value)
    if kind == "regex":
        return grammars.regex(value)
    if kind == "choice":
        return grammars.choice(value)
    return grammars.lark(value)


def _gate(engine: Engine, chat: Chat, prompt: Sequence[int]) -> Gate | None:
    """Reasoning comes before the constraint: begun by the prompt, or by the model where it may."""
    form = engine.format
    if chat.prompt is not None or not form.style.closer:
        return None
    closer = tuple(engine.tokenizer.encode(form.style.closer, special=True))
    if form.starts_thinking(prompt):
        return Gate(closer)
    opener = engine.tokenizer.token(form.style.opener.strip())
    # An opener of several tokens cannot be let through by its first one alone.
    return Gate(closer, opener) if chat.thinking is True and form.thinks and opener is not None else None


def _grammars_of(engine: Engine) -> Grammars:
    with _grammars_lock:
        if engine not in _grammars:
            spec = engine.spec
            _grammars[engine] = Grammars(engine.tokenizer, spec.vocab_size, spec.stop_ids)
        return _grammars[engine]
