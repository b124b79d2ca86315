"""Chats from files of others, and our own exports back: Markdown, JSON of messages, or lines of "User: …".

Reads hostile files: what is too large, too deep or no text is refused in one sentence; control characters stay out.
Knows no screen and no database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.chat.foreign_text import decoded, read_json, whole
from engine.chat.terminal_safe import clean, one_line
from engine.errors import UsageError
from tui.conversation import turns_json
from tui.conversation.chat import Answer, Chat, Status, Turn

MAX_BYTES = 32 << 20
MAX_MESSAGES = 5000
USER = frozenset({"user", "you", "human", "me", "prompt", "question", "q"})
ASSISTANT = frozenset({"assistant", "model", "bot", "ai", "gpt", "chatgpt", "claude", "llm", "answer", "response", "a"})
SYSTEM = frozenset({"system", "developer"})
MISSING = "…"
"""The user's part of an answer that nobody asked for."""
_HEADING = re.compile(r"^#{1,6}\s+\W*(?P<name>[A-Za-z]+)\W*$")
_BOLD = re.compile(r"^\*\*(?P<name>[^*\n]+?):?\*\*:?$")
_LABEL = re.compile(r"^(?P<name>[A-Za-z]+)\s*:(?:[ \t]+|$)")
_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})")

Message = tuple[str, str]
"""(role, text); the role is user, assistant or system."""


class ImportRefused(UsageError):
    """The file holds no chat that can be read."""


def read(path: Path) -> Chat:
    """The chat in a file.

    Raises:
        ImportRefused: with one sentence.
    """
    name = one_line(path.name)
    try:
        if not path.is_file():
            raise ImportRefused(f"{name} is no file." if path.exists() else f"There is no file {one_line(str(path))}.")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ImportRefused(f"{name} has {size >> 20} MB; up to {MAX_BYTES >> 20} MB are read. Split it first.")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ImportRefused(f"{name} cannot be read: {reason}.") from error
    if b"\0" in data[:8192]:
        raise ImportRefused(f"{name} is no text.")
    chat = parse(decoded(data), name)
    chat.title = chat.title or one_line(path.stem)[:80]
    return chat


def parse(text: str, name: str = "The file") -> Chat:
    """The chat in a text; `name` stands in the sentence when there is none.

    Raises:
        ImportRefused: with one sentence.
    """
    text = whole(text).replace("\r\n", "\n").replace("\r", "\n")
    if text.lstrip()[:1] in ("{", "["):
        return _from_json(text, name)
    title, messages = _markdown(text)
    if not messages:
        messages = _labelled(text)
    if not messages:
        raise ImportRefused(
            f"{name} holds no chat that is understood: JSON of messages, headings like “## User”, lines like “User: …”."
        )
    chat = _chat(messages, name)
    chat.title = title
    return chat


# JSON -----------------------------------------------------------------------------------------------------------------


def _from_json(text: str, name: str) -> Chat:
    try:
        data = _loads(text)
    except ValueError as error:
        raise ImportRefused(f"{name} is not valid JSON: {one_line(str(error))}.") from None
    if isinstance(data, dict) and isinstance(data.get("turns"), list):
        chat = Chat(turns=turns_json.turns(data["turns"][:MAX_MESSAGES]))
        if not chat.turns:
            raise ImportRefused(f"{name} holds no turn.")
    else:
        chat = _chat(_messages(data), name)
    if isinstance(data, dict):
        chat.title = one_line(data["title"])[:200] if isinstance(data.get("title"), str) else ""
        chat.system = clean(data["system"]) if isinstance(data.get("system"), str) else chat.system
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            chat.created = turns_json.number(data["created"])
    return chat


def _loads(text: str) -> Any:
    """One value, or a value a line."""
    try:
        return read_json(text)
    except ValueError:
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) < 2 or not lines[0].rstrip().endswith("}"):
            raise
        return [read_json(line) for line in lines]


def _messages(data: Any) -> list[Message]:
    """From a list of messages, or an object that has one."""
    if isinstance(data, dict):
        data = next((data[key] for key in ("messages", "conversations", "conversation") if key in data), [])
    out: list[Message] = []
    for entry in data if isinstance(data, list) else []:
        if not isinstance(entry, dict):
            continue
        role = _role(entry.get("role", entry.get("from")))
        content = entry.get("content", entry.get("value", entry.get("text")))
        if role and (text := _said(content)).strip():
            out.append((role, text))
    return out


def _said(content: Any) -> str:
    """Text of a message whose content is text, or parts of which some are."""
    if isinstance(content, str):
        return content
    parts: list[str] = []
    for part in content if isinstance(content, list) else []:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict):
            text = part.get("text")
            parts.append(text if isinstance(text, str) else f"[{one_line(str(part.get('type', 'part')))[:40]}]")
    return "\n".join(parts)


# Text -----------------------------------------------------------------------------------------------------------------


def _markdown(text: str) -> tuple[str, list[Message]]:
    """Title and messages under headings, or under the bold names of our own export."""
    lines = text.split("\n")
    title = one_line(lines[0][2:])[:200] if lines[0].startswith("# ") and not _role(lines[0][2:]) else ""
    messages: list[Message] = []
    role, part, named = "", list[str](), ""
    for line, fenced in _unfenced(lines[1:] if title else lines):
        heard = "" if fenced else _spoken(line, role, named)
        if heard:
            named = "" if heard == "user" and _BOLD.match(line) else line
            if role or any(x.strip() for x in part):
                messages.append((role or "preface", "\n".join(part)))
            role, part = heard, []
        else:
            part.append(line)
    messages.append((role or "preface", "\n".join(part)))
    preface = [text for who, text in messages if who == "preface"]
    spoken = [(who, text.strip("\n")) for who, text in messages if who != "preface" and text.strip()]
    quoted = [line[1:].removeprefix(" ") for line in "\n".join(preface).strip().split("\n") if line.startswith(">")]
    return title, [("system", "\n".join(quoted)), *spoken] if quoted and spoken else spoken


def _spoken(line: str, role: str, named: str) -> str:
    """The role that a line begins, or nothing. In our own export the answer stands under its model's bold name, which
    is the first bold line after the user's."""
    match = _HEADING.match(line)
    if match:
        return _role(match["name"])
    match = _BOLD.match(line)
    if match is None:
        return ""
    return _role(match["name"]) or ("assistant" if role == "user" and not named else "")


def _unfenced(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is code, where nothing is a heading."""
    fence = ""
    for line in lines:
        match = _FENCE.match(line)
        if match and not fence:
            fence = match[1]
        elif match and match[1].startswith(fence) and line.strip() == match[1]:
            fence = ""
        yield line, bool(fence)


def _labelled(text: str) -> list[Message]:
    """Lines that begin with "User:" or "Assistant:"; the lines after belong to them."""
    messages: list[tuple[str, list[str]]] = []
    for line in text.split("\n"):
        match = _LABEL.match(line)
        role = _role(match["name"]) if match else ""
        if match and role:
            messages.append((role, [line[match.end() :]]))
        elif messages:
            messages[-1][1].append(line)
    return [(role, "\n".join(part).strip("\n")) for role, part in messages if "".join(part).strip()]


def _role(name: Any) -> str:
    word = name.strip().lower() if isinstance(name, str) else ""
    for role, words in (("user", USER), ("assistant", ASSISTANT), ("system", SYSTEM)):
        if word in words:
            return role
    return ""


# To a chat ------------------------------------------------------------------------------------------------------------


def _chat(messages: list[Message], name: str) -> Chat:
    """Turns from messages; several of one role in a row are one."""
    if not any(role != "system" for role, _ in messages):
        raise ImportRefused(f"{name} holds no message of a user or an assistant.")
    if len(messages) > MAX_MESSAGES:
        raise ImportRefused(
            f"{name} holds {len(messages):,} messages; up to {MAX_MESSAGES:,} are read. Split it first."
        )
    chat = Chat(system="\n\n".join(clean(text) for role, text in messages if role == "system"))
    for role, text in messages:
        if role == "user":
            if chat.turns and not chat.turns[-1].answer.text:
                chat.turns[-1].user += f"\n\n{clean(text)}"
            else:
                chat.turns.append(Turn(clean(text), Answer(status=Status.STOPPED)))
        elif role == "assistant":
            if not chat.turns:
                chat.turns.append(Turn(MISSING, Answer()))
            answer = chat.turns[-1].answer
            answer.text += f"\n\n{clean(text)}" if answer.text else clean(text)
            answer.prov, answer.status = bytearray(len(answer.text)), Status.DONE
    return chat
