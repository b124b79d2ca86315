"""Conversations as token ids: chat templates made robust, and what the prefix cache and the front ends need to know.

Wraps a transformers tokenizer and its Jinja template. Knows message dictionaries and ids; no model, no screen, no
dialect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from engine.chat.messages import SYSTEM_ROLES, Message, forms, leaves_out
from engine.chat.reasoning import Segment, Style, ThinkSplitter, closing, opened, style_of
from engine.chat.reply_cache import Replies
from engine.chat.spelt_tokens import CUT, SpeltTokens
from engine.chat.stable_prefix import Probe, common, probe
from engine.errors import UsageError

__all__ = ["ChatFormat", "Prompt", "Segment", "ThinkSplitter"]

Ending = Literal["header", "turn", "text"]
"""What a prompt ends in: the header of the answer to come, a closed turn, or the text of an answer that goes on."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""From less to more thinking."""
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""For checkpoints without a template."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation ready for the engine."""

    ids: list[int]
    boundaries: tuple[int, ...]
    """For Request.boundaries: end of the head that other chats share, and the end of what stays when the turn is
    history."""
    thinking: bool
    """The prompt leaves the model inside its reasoning."""


class ChatFormat:
    """One tokenizer's way to write conversations."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        template = getattr(tokenizer, "chat_template", None)
        if isinstance(template, Mapping):
            named = cast("Mapping[str, str]", template)
            template = named.get("default") or next(iter(named.values()), None)
        self._template: str | None = None if template else self._fallback()
        self.source = str(template or self._template)
        """The template's text."""
        self.style: Style = style_of(self.source)
        self._spelt = SpeltTokens(tokenizer, self._plain)
        self._probes: dict[tuple[bool | None, str | None], Probe] = {}
        self._heads: dict[str, list[int]] = {}
        self._replies = Replies(self._plain, self._decode)

    def _fallback(self) -> str:
        i = self._tokenizer.convert_tokens_to_ids("<|im_start|>")
        return CHATML if isinstance(i, int) and i != self._tokenizer.unk_token_id else PLAIN

    # Rendering -------------------------------------------------------------------------------------------------------

    def prompt(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        effort: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
    ) -> Prompt:
        """Everything that a request for the next assistant turn needs. thinking: nothing to a model that does not."""
        thinking = thinking if self.thinks else None
        ids = self.render(
            messages,
            thinking=thinking,
            effort=effort,
            tools=tools,
            extra=extra,
            add_generation_prompt=add_generation_prompt,
            continue_final=continue_final,
        )
        probed = self._probe(thinking, effort)
        head = self._head(messages, ids, thinking, effort, tools, extra)
        marks = {n for n in (head, len(ids) - probed.tail(ids)) if 0 < n < len(ids)}
        return Prompt(ids, tuple(sorted(marks)), self.starts_thinking(ids))

    def render(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        effort: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        extra: Mapping[str, Any] | None = None,
        continue_final: bool = False,
    ) -> list[int]:
        """Token ids of a conversation. continue_final: they end in the text of the last message, an answer that is to
        go on.

        thinking: None leaves it to the template; False closes a block that the template opens whatever it is told.
        effort: the nearest one that the template takes, the lower on a tie. extra: further template variables.

        Raises:
            UsageError: no messages, or the template refuses them (or the tools) in every form.
        """
        options: dict[str, Any] = dict(extra or {})
        if thinking is None and effort == "none":
            thinking = False
        if thinking is not None:
            # Families differ in the name; a template ignores the one that it does not know.
            options.setdefault("enable_thinking", thinking)
            options.setdefault("thinking", thinking)
        ending: Ending = "text" if continue_final else "header" if add_generation_prompt else "turn"
        ids = self._write(messages, options, effort, tools, ending, thinking is False)
        if ids is None:
            ids = self._write(messages, options, effort, tools, ending, thinking is False, fresh=True)
        assert ids is not None
        return ids

    def remember(self, text: str, ids: Sequence[int]) -> None:
        """An answer as it was generated: as history it will be these tokens again, whatever the tokenizer would make
        of its text."""
        self._replies.add(text, ids)

    def _write(
        self,
        messages: Sequence[Message],
        options: dict[str, Any],
        effort: str | None,
        tools: Sequence[Mapping[str, Any]] | None,
        ending: Ending,
        close: bool,
        fresh: bool = False,
    ) -> list[int] | None:
        """Render and encode. fresh: without known answers; None when they cannot be used."""
        text = self._text(messages, options, effort, tools, ending, fresh)
        if close and ending == "header" and opened(text[-256:], self.style):
            text = text.rstrip("\n") + closing(self.style)
        pieces = self._replies.split(text)
        if pieces is None:
            return None
        return [t for p in pieces for t in (self._spelt.encode(p) if isinstance(p, str) else p)]

    def _text(
        self,
        messages: Sequence[Message],
        options: dict[str, Any],
        effort: str | None,
        tools: Sequence[Mapping[str, Any]] | None,
        ending: Ending,
        fresh: bool,
    ) -> str:
        """The rendered text. What a template refuses is taken away one by one; tools never."""
        if not messages:
            raise UsageError("There is no message to answer.")
        if tools and "tools" not in self.source:
            raise UsageError("The model's chat template has no place for tools; ask without them.")
        error: Exception | None = None
        options, tools = self._spelt.guard(options), self._spelt.guard(tools)
        for form in forms(messages):
            guarded: list[Message] = [*self._spelt.guard(form)]
            if ending == "text":
                guarded[-1] = {**guarded[-1], "content": f"{guarded[-1]['content']}{CUT}"}
            known = guarded if fresh else [self._mark(m) for m in guarded]
            for attempt in self._attempts(options, effort):
                try:
                    text = self._apply(known, attempt, tools, ending)
                    if any(m["content"] not in text for m, g in zip(known, guarded, strict=True) if m is not g):
                        # This template does more with an answer than print it.
                        text = self._apply(guarded, attempt, tools, ending)
                except Exception as e:  # noqa: BLE001  templates are programs of strangers and may raise anything
                    error = error or e
                    continue
                if leaves_out(guarded, text):
                    break
                return text
        if error is None:
            raise UsageError("The model's chat template leaves the system message out in every form.")
        raise UsageError(f"The model's chat template refuses this conversation: {error}") from error

    def _attempts(self, options: dict[str, Any], effort: str | None) -> list[dict[str, Any]]:
        """Template variables to try, the wanted ones first."""
        if effort is not None and "reasoning_effort" in self.source:
            tries = [{**options, "reasoning_effort": e} for e in nearest_efforts(effort)]
        else:
            tries = [options]
        return [*tries, *({k: v for k, v in options.items() if k != name} for name in options), {}]

    def _apply(self, messages: list[Message], options: dict[str, Any], tools: Any, ending: Ending) -> str:
        text: str = self._tokenizer.apply_chat_template(
            messages,
            tools=list(tools) if tools else None,
            add_generation_prompt=ending == "header",
            tokenize=False,
            chat_template=self._template,
            **options,
        )
        return text[: text.rindex(CUT)] if ending == "text" else text

    def _mark(self, message: Message) -> Message:
        """Put a number in the place of an answer whose tokens are known."""
        content = message.get("content")
        if message.get("role") != "assistant" or not isinstance(content, str):
            return message
        marked = self._replies.mark(content)
        return message if marked == content else {**message, "content": marked}

    def _plain(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    # What the template does ------------------------------------------------------------------------------------------

    @property
    def thinks(self) -> bool:
        """Whether the template knows of reasoning at all."""
        style = self.style
        return (style.opener or style.message).rstrip("\n") in self.source

    @property
    def switchable(self) -> bool:
        """Whether thinking can be asked for and asked not to."""
        return "enable_thinking" in self.source or re.search(r"\bthinking\b", self.source) is not None

    def starts_thinking(self, ids: Sequence[int]) -> bool:
        """Whether a prompt leaves the model inside its reasoning (the template wrote the opener)."""
        return opened(self._decode(ids[-64:]), self.style)

    def splitter(self, ids: Sequence[int], said: str = "") -> ThinkSplitter:
        """A splitter for the text that follows this prompt. said: the prompt ends in this part of the answer."""
        tail = self._decode(ids[-64 - len(said) :]).removesuffix(said)
        header = bool(self.style.message) and self.style.message not in tail[tail.rfind(self.style.ends[0]) :]
        splitter = ThinkSplitter(self.style, inside=opened(tail, self.style), header=header)
        return splitter.after(said) if said else splitter

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def keeps_reply(self, ids: Sequence[int]) -> bool:
        """Whether the turn that follows this prompt will stand in history as it was generated, so that the state after
        it is worth keeping. True for prompts that are no conversation."""
        probes = [self._probe(thinking, None) for thinking in (None, True, False)]
        n = max((len(p.opening) for p in probes if p.ends(ids)), default=0)
        return n == 0 or any(p.keeps_reply for p in probes if len(p.opening) == n and p.ends(ids))

    def _probe(self, thinking: bool | None, effort: str | None) -> Probe:
        """How this variant of the template treats the end of a prompt once it is history; probed once."""
        key = (thinking, effort)
        if key not in self._probes:
            self._probes[key] = probe(
                lambda messages, generate: self.render(
                    messages, thinking=thinking, effort=effort, add_generation_prompt=generate
                ),
                self._decode,
                self.style,
                self.thinks and thinking is not False,
            )
        return self._probes[key]

    def _head(
        self,
        messages: Sequence[Message],
        ids: list[int],
        thinking: bool | None,
        effort: str | None,
        tools: Any,
        extra: Any,
    ) -> int:
        """Length of what another chat with the same system prompt and tools begins with too."""
        system = [m for m in messages[:2] if m.get("role") in SYSTEM_ROLES]
        key = json.dumps([system, tools, extra, thinking, effort], sort_keys=True, default=str)
        if key not in self._heads:
            try:
                one, two = (
                    self.render(
                        [*system, {"role": "user", "content": c}],
                        thinking=thinking,
                        effort=effort,
                        tools=tools,
                        extra=extra,
                    )
                    for c in ("0", "Z")
                )
            except UsageError:
                return 0
            if len(self._heads) >= 64:
                self._heads.clear()
            self._heads[key] = one[: common(one, two)]
        return common(ids, self._heads[key])


def nearest_efforts(effort: str) -> list[str]:
    """All efforts, nearest first; on a tie the one with less thinking."""
    if effort not in EFFORTS:
        return [effort]
    at = EFFORTS.index(effort)
    return sorted(EFFORTS, key=lambda e: (abs(EFFORTS.index(e) - at), EFFORTS.index(e)))
