"""What the slash commands about the chat at hand do: a function each, from host and words to a sentence."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine import paths
from engine.chat.images import picture_path
from engine.chat.terminal_safe import one_line
from tui.commands.host import Host, Result
from tui.conversation import compare, export, importer
from tui.conversation.stats import counted
from tui.terminal import clipboard


def drafter(host: Host, words: str) -> Result:
    session = host.session
    if not words:
        rows: list[str] = []
        for each in session.drafters:
            note = each.detail if each.available else each.reason or "not available"
            mark = "›" if each.name == session.drafter else " "
            rows.append(f"{mark} {each.name}" + (f": {note}" if note else ""))
        return "\n".join(rows) or "The model is not loaded yet."
    return session.use(words) or f"Drafter {words}, from the next round on."


async def new(host: Host, words: str) -> Result:
    await host.show_chat(host.library.new())
    return None


async def resume(host: Host, words: str) -> Result:
    found = host.library.find(words)
    if isinstance(found, str):
        return found
    await host.show_chat(found)
    return None


def rename(host: Host, words: str) -> Result:
    if not words:
        return "/rename TITLE gives this chat a title."
    host.session.chat.title = words
    if host.library.store is not None:
        host.library.store.rename(host.session.chat.id, words)
    return f"This chat is called “{words}”."


async def regenerate(host: Host, words: str) -> Result:
    return await host.answer_again()


async def edit(host: Host, words: str) -> Result:
    return await host.answer_again(words) if words else "/edit TEXT puts another message in the place of the last one."


def undo(host: Host, words: str) -> Result:
    return host.library.restore()


def copy(host: Host, words: str) -> Result:
    chat = host.session.chat
    what, _, number = words.partition(" ")
    if what == "chat":
        text = export.markdown(chat)
    else:
        answer = next((t.answer.reply for t in reversed(chat.turns) if t.answer.text), "")
        if what == "code":
            blocks = code_blocks(answer)
            n = int(number) if number.isdigit() else len(blocks)
            if not 1 <= n <= len(blocks):
                return f"The last answer has {len(blocks)} code blocks."
            text = blocks[n - 1]
        else:
            text = answer
    if not text:
        return "There is nothing to copy yet."
    host.copy_text(text)
    return f"Copied {len(text)} characters."


def code_blocks(text: str) -> list[str]:
    """Contents of the fenced blocks of an answer."""
    from tui.markdown.render import parser

    return [token.content for token in parser().parse(text) if token.type == "fence"]


def write(host: Host, words: str) -> Result:
    if not words:
        return f"/export FILE, ending in {', '.join(export.FORMATS)}."
    path = Path(words.removeprefix("replace ").strip()).expanduser()
    export.write(host.session.chat, path, host.look, replace=words.startswith("replace "))
    return f"Written to {path}."


async def read(host: Host, words: str) -> Result:
    if not words:
        return "/import FILE reads a chat from Markdown, JSON or text."
    chat = importer.read(Path(words.strip("'\"")).expanduser())
    await host.show_chat(host.library.keep(chat))
    return f"Read “{one_line(chat.name)}”, {counted(len(chat.turns), 'turn')}."


def stats(host: Host, words: str) -> Result:
    session = host.session
    tally = session.totals if words == "session" else session.last
    if not tally.tokens:
        return "There is no answer yet."
    shares = ", ".join(f"{source} {share}%" for source, share in tally.legend.items())
    rate = f"{tally.rate:.1f} tok/s" if tally.rate is not None else "no rate yet"
    accept = f"acceptance {tally.acceptance:.2f}" if tally.acceptance is not None else "nothing drafted"
    return f"{tally.tokens} tokens in {tally.rounds} rounds: {shares}; {accept}; {rate}."


def comparison(host: Host, words: str) -> Result:
    calibration = getattr(host.session.engine, "calibration", None)
    answers = [turn.answer for turn in host.session.chat.turns]
    return compare.table(answers, float(getattr(calibration, "plain", 0.0) or 0.0))


async def image(host: Host, words: str) -> Result:
    match words:
        case "":
            return "/image FILE sends a picture with the next message; @FILE in the message does the same."
        case "show":
            return host.full.pictures() if host.full is not None else "/image show needs the full screen."
        case "paste":
            path = await asyncio.to_thread(clipboard.keep_picture, paths.data() / "pasted")
        case "clear":
            host.session.album.waiting.clear()
            return "No picture waits any more."
        case _:
            path = picture_path(words).absolute()
    return host.attach(path)


def context(host: Host, words: str) -> Result:
    engine = host.session.engine
    return f"{host.session.used} of {engine.spec.context} tokens." if engine is not None else "No model is loaded yet."


def leave(host: Host, words: str) -> Result:
    host.leave()
    return None
