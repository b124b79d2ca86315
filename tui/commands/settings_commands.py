"""The slash commands about settings: /set, /preset, /system and /think, and what they can be completed with."""

from __future__ import annotations

from collections.abc import Sequence

from engine import config as declared
from engine.chat.terminal_safe import one_line
from engine.config import about
from tui.commands.host import Choice, Host
from tui.settings import presets, settings

EFFORTS = declared.words(settings.find("effort"))
SWITCH = {"on": True, "off": False, "auto": None}


def set_(host: Host, words: str) -> str:
    session = host.session
    first, _, rest = words.partition(" ")
    for_session = first == "session"
    name, _, value = (rest.strip() if for_session else words).replace("=", " ", 1).partition(" ")
    if name == "logprobs":
        session.logprobs = min(int(value), 20) if value.strip().isdigit() else None
        return f"logprobs is {session.logprobs} from the next answer on."
    if name and value.strip():
        return settings.put(session, name, value, for_session)
    rows = settings.rows(session.effective, session.chat.system)
    if not name:
        return "\n".join(line(row) for row in rows if row.group in settings.NOW)
    row = next(row for row in rows if row.name == settings.find(name).name.replace("_", "-"))
    return f"{row.name} is {row.value or 'empty'}{decided(row)}: {row.help}. It takes {row.takes}."


def line(row: settings.Row) -> str:
    return f"{row.name:<20} {one_line(row.value) or 'empty':<12} {row.help}{decided(row)}"


def decided(row: settings.Row) -> str:
    """Who decided, when somebody did; a file by its name."""
    return f" ({one_line(row.source).rpartition('/')[2]})" if row.source else ""


def set_choices(host: Host, words: str) -> Sequence[Choice]:
    """Names, and then values where they are known."""
    prefix = "session " if words.startswith("session ") else ""
    name, space, _ = words.removeprefix(prefix).partition(" ")
    if not space:
        rows = [r for r in settings.rows(host.session.effective) if not prefix or r.group in settings.NOW]
        names = [(f"{prefix}{r.name} ", f"{one_line(r.value) or 'empty'}{decided(r)} · {r.help}") for r in rows]
        return names if prefix else [*names, ("session ", "not kept in the file")]
    setting = next((s for s in declared.settings() if s.name == name.replace("-", "_")), None)
    if setting is None:
        return []
    values = [str(v) for v in about(setting).choices] or [*declared.words(setting)]
    if "bool" in str(setting.type):
        values = ["on", "off"]
    return [
        *((f"{prefix}{name} {value}", "") for value in values),
        (f"{prefix}{name} default", declared.takes(setting)),
    ]


def preset(host: Host, words: str) -> str:
    session = host.session
    verb, _, name = words.partition(" ")
    match verb:
        case "" | "list":
            return presets.listing(session)
        case "none" if not name:
            return presets.leave(session)
        case "save":
            return presets.save(session, name.strip())
        case "delete":
            return presets.delete(session, name.strip())
        case _:
            return presets.use(session, words)


def preset_choices(host: Host, words: str) -> Sequence[Choice]:
    names = presets.names()
    uses = [(name, "") for name in names]
    verbs = [("save ", "keep what is set now under a name"), ("none", "back to the settings of the start")]
    return [*uses, *verbs, *((f"delete {name}", "") for name in names)]


async def system(host: Host, words: str) -> str:
    chat = host.session.chat
    if words == "edit":
        text = await host.edit_text(chat.system)
        if text is None or text == chat.system:
            return "The system prompt is as it was."
        chat.system = text
    elif not words:
        said = f"System prompt: {chat.system}" if chat.system else "There is no system prompt; /system TEXT sets one."
        return f"{said}\n/system edit opens it in your editor, /set system keeps one for all chats."
    else:
        chat.system = "" if words in ("none", "off") else words
    return "The system prompt holds from the next answer on."


def system_choices(host: Host, words: str) -> Sequence[Choice]:
    return [("edit", "in your editor"), ("none", "without one")]


def think(host: Host, words: str) -> str:
    session = host.session
    config, engine = session.effective, session.engine
    word = words.lower()
    if word in SWITCH:
        settings.decide(session, "thinking", SWITCH[word], settings.SESSION if word != "auto" else None)
    elif word in EFFORTS:
        settings.decide(session, "effort", word, settings.SESSION)
    elif words:
        return f"/think takes {', '.join([*SWITCH, *EFFORTS])}, not “{one_line(words)}”."
    else:
        how = {True: "on", False: "off", None: "as the model's template says"}[config.thinking]
        return f"Thinking is {how}{f', effort {config.effort}' if config.effort else ''}. /set thinking keeps a choice."
    said = f"Effort {word}" if word in EFFORTS else f"Thinking {word}"
    if engine is not None and not engine.format.thinks:
        return f"{said}; {one_line(engine.spec.name)} does not think before it answers, so it changes nothing here."
    return f"{said}, from the next answer on, in this session."


def think_choices(host: Host, words: str) -> Sequence[Choice]:
    notes = {"on": "think first", "off": "answer at once", "auto": "as the model's template says"}
    return [*notes.items(), *((effort, "effort, for models that know degrees") for effort in EFFORTS)]
