"""Chats from files: the forms that are read, our own exports back, and what hostile files come to."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.types import Source
from tests.cases import examples
from tests.tui.fakes import script
from themes import DEFAULT, load
from tui.conversation import export, importer, turns_json
from tui.conversation.chat import Answer, Chat, Status, Turn
from tui.conversation.importer import ImportRefused

EXPECTED = [("What is [1]?", "One.\n\n```md\n## User\nUser: no\n```"), ("And 2?", "Two: **yes**\n\nof course")]
MESSAGES = [{"role": r, "content": c} for q, a in EXPECTED for r, c in (("user", q), ("assistant", a))]
FORMS = {
    "headings": "".join(f"## User\n\n{q}\n\n## Assistant\n\n{a}\n\n" for q, a in EXPECTED),
    "other headings": "".join(f"### 🧑 Human:\n{q}\n### **ChatGPT**\n{a}\n" for q, a in EXPECTED),
    "bold": "".join(f"**You**\n\n{q}\n\n**some-model-135m**\n\n{a}\n\n" for q, a in EXPECTED),
    "messages": json.dumps(MESSAGES),
    "openai": json.dumps({"model": "m", "messages": [{"role": "system", "content": "Be kind."}, *MESSAGES]}),
    "parts": json.dumps([m | {"content": [{"type": "text", "text": m["content"]}]} for m in MESSAGES]),
    "sharegpt": json.dumps({"conversations": [
        {"from": "human" if m["role"] == "user" else "gpt", "value": m["content"]} for m in MESSAGES]}),
    "lines": "\n".join(json.dumps(m) for m in MESSAGES),
}  # fmt: skip


def pairs(chat: Chat) -> list[tuple[str, str]]:
    return [(turn.user, turn.answer.text) for turn in chat.turns]


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_others(form: str) -> None:
    chat = importer.parse(FORMS[form])
    assert pairs(chat) == EXPECTED
    assert chat.system == ("Be kind." if form == "openai" else "")
    assert all(t.answer.status is Status.DONE and len(t.answer.prov) == len(t.answer.text) for t in chat.turns)


def test_lines_with_names() -> None:
    chat = importer.parse("System: Be brief.\nUser: one\nmore: of it\nAssistant: two\nhttp://x\n\nHuman: three")
    assert pairs(chat) == [("one\nmore: of it", "two\nhttp://x"), ("three", "")]
    assert chat.system == "Be brief."
    assert chat.turns[1].answer.status is Status.STOPPED


def test_odd_orders() -> None:
    chat = importer.parse(json.dumps([{"role": "assistant", "content": "Hello."}, *MESSAGES[:1], *MESSAGES]))
    assert pairs(chat)[0] == ("…", "Hello.")
    assert pairs(chat)[1][0] == "What is [1]?\n\nWhat is [1]?"


def whole() -> Chat:
    """A chat with everything that an export knows."""
    chat = Chat(title="Mine", system="Be kind.\nAnd brief.")
    for text, source in (
        ("Speculative **decoding** 結果 👍🏽 works.", Source.DRAFT),
        ("Copied from above.", Source.LOOKUP),
    ):
        turn = Turn("why?", Answer(model="fake-135m", seed=7, first_ms=210.0))
        for event in script(text, source=source):
            list(turn.answer.take(event))
        turn.answer.status = Status.DONE
        chat.turns.append(turn)
    chat.turns[0].answer.thought_ranges, chat.turns[0].answer.reply_ranges = [(0, 12)], [(12, 30)]
    chat.turns[1].images = ("cat.png 8×6",)
    return chat


def test_our_own_json_comes_back_whole() -> None:
    chat = whole()
    back = importer.parse(turns_json.document(chat))
    assert back.id != chat.id
    one, two = (json.loads(turns_json.document(c)) for c in (chat, back))
    assert {**one, "id": ""} == {**two, "id": ""}
    assert [t.answer.spans for t in back.turns] == [t.answer.spans for t in chat.turns]
    assert back.turns[0].answer.tally.legend == chat.turns[0].answer.tally.legend
    assert back.tally.rate == chat.tally.rate


def test_our_own_markdown_comes_back_as_text(tmp_path: Path) -> None:
    chat = whole()
    chat.turns[0].answer.thought_ranges = []
    export.write(chat, tmp_path / "chat.md", load().themes[DEFAULT])
    back = importer.read(tmp_path / "chat.md")
    assert pairs(back) == pairs(chat)
    assert (back.title, back.system) == (chat.title, chat.system)


@pytest.mark.parametrize(("data", "says"), [
    (b"", "holds no chat"), (b"just words\n" * 9, "holds no chat"), (b"PK\x03\x04\0\0", "is no text"),
    (b"[" * 100_000, "nested too deeply"), (b'{"a":' * 100_000, "nested too deeply"), (b"{", "is not valid JSON"),
    (b'{"turns": []}', "holds no turn"), (b'{"turns": [1, {"user": 3}]}', "holds no turn"), (b"[]", "holds no message"),
    (b'[{"role": "tool", "content": "x"}]', "holds no message"), (b'{"messages": 3}', "holds no message"),
    (b"[" + b"9" * 5000 + b"]", "is not valid JSON"), (b'[{"role": "system", "content": "x"}]', "holds no message"),
])  # fmt: skip
def test_what_is_no_chat_is_refused_in_one_sentence(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "od\x1b[2Jd.json"
    path.write_bytes(data)
    with pytest.raises(ImportRefused, match=says) as caught:
        importer.read(path)
    assert str(caught.value).startswith("odd.json ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    with path.open("wb") as file:
        file.truncate(100 << 20)  # sparse
    with pytest.raises(ImportRefused, match="has 100 MB; up to 32 MB are read"):
        importer.read(path)
    many = json.dumps([{"role": "user", "content": "x"}] * (importer.MAX_MESSAGES + 1))
    with pytest.raises(ImportRefused, match="5,001 messages"):
        importer.parse(many)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, says in (("fifo", "is no file"), (".", "is no file"), ("nothing", "There is no file")):
        with pytest.raises(ImportRefused, match=says):
            importer.read(tmp_path / name)


def test_control_characters_stay_out() -> None:
    evil = "a\x1b]52;c;aGk=\x07b\x9b2Jc\u202ed"
    chat = importer.parse(json.dumps({"title": evil, "system": evil, "messages": [
        {"role": "user", "content": evil}, {"role": "assistant", "content": evil}]}))  # fmt: skip
    data = json.loads(turns_json.document(whole()))
    data["turns"][0] |= {"user": evil, "text": evil, "model": evil, "drafter": evil, "error": evil, "images": [evil]}
    mine = importer.parse(json.dumps(data))
    answer = mine.turns[0].answer
    seen = [chat.title, chat.system, *pairs(chat)[0], *pairs(mine)[0], answer.model, answer.drafter, answer.error]
    assert {*seen, *mine.turns[0].images} == {"abcd"}
    assert len(answer.prov) == 4


@pytest.mark.parametrize("change", [
    {"provenance": [[10**12, "draft"]]}, {"provenance": [[-1, "draft"]]}, {"provenance": "x"}, {"rounds": [{}]},
    {"rounds": 3}, {"ends": [5, 1]}, {"ends": "abc"}, {"reasoning": [[5, 1]]}, {"reply": [[0, 999]]},
    {"first_ms": float("inf")}, {"status": "nonsense"}, {"status": "streaming"}, {"images": 5}, {"seed": 10**30},
    {"seed": "x", "first_ms": "y"},
])  # fmt: skip
def test_odd_details_cost_the_detail_only(change: dict[str, Any]) -> None:
    data = json.loads(turns_json.document(whole()))
    data["turns"][0] |= change
    chat = importer.parse(json.dumps(data))
    answer = chat.turns[0].answer
    assert answer.text == whole().turns[0].answer.text
    assert len(answer.prov) == len(answer.text)
    assert answer.status.over
    turns_json.document(chat)


@examples(60)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["messages", "role", "content", "turns", "user", "text", "rounds", "tokens", "provenance", "title", "system"]),
        inner, max_size=4), max_leaves=12))  # fmt: skip
def test_any_json_is_a_chat_or_a_sentence(data: Any) -> None:
    with suppress(ImportRefused):
        assert importer.parse(json.dumps(data if isinstance(data, dict | list) else [data])).turns


@examples(60)
@given(st.text(st.sampled_from("#* >`UserAsitnY:\n\x1b[你"), max_size=80))
def test_any_text_is_a_chat_or_a_sentence(text: str) -> None:
    with suppress(ImportRefused):
        assert importer.parse(f"User: {text}").turns


def test_n04_half_a_surrogate_pair_in_a_file_becomes_a_replacement(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_bytes(b'[{"role": "user", "content": "ab\\ud83d cd"}, {"role": "assistant", "content": "\xed\xa0\xbd"}]')
    turn = importer.read(path).turns[0]
    assert turn.user == "ab\ufffd cd"
    assert turn.answer.text.strip("\ufffd") == ""
