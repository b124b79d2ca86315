"""What somebody else wrote comes in as whole characters: bytes, text and JSON of any kind, never an exception."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chat.foreign_text import decoded, json_bytes, read_json, whole, whole_json

HALF, LOW = "\ud83d", "\ude00"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("plain", "plain"),
        ("caf\xe9 \U0001f600", "caf\xe9 \U0001f600"),
        (f"ab{HALF} cd", "ab\ufffd cd"),
        (f"ab{LOW}{HALF}", "ab\ufffd\ufffd"),
        (HALF + LOW, "\U0001f600"),
        (f"{HALF}{HALF}{LOW}", "\ufffd\U0001f600"),
        (f"{HALF}\U0001f600", "\ufffd\U0001f600"),
    ],
)
def test_n04_half_a_surrogate_pair_becomes_a_replacement(text: str, wanted: str) -> None:
    assert whole(text) == wanted
    assert read_json(json.dumps({text: [text]})) == {wanted: [wanted]}
    assert json.loads(json_bytes(json.dumps(text).encode())) == wanted
    assert read_json(json.dumps(text, ensure_ascii=False)) == wanted


@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=40))
def test_any_text_can_be_stored_and_whole_text_stays(text: str) -> None:
    found = whole(text)
    found.encode()
    assert whole(found) == found
    # Escapes never join with what stands beside them, and escaped backslashes are no escapes.
    assert read_json(json.dumps(text)) == found
    assert read_json(json.dumps(json.dumps(text))) == json.dumps(text)


@given(st.binary(max_size=60))
def test_any_bytes_are_text(data: bytes) -> None:
    decoded(data).encode()
    json_bytes(data).decode()


@pytest.mark.parametrize(
    "data", [b'{"a": 1}', b'\xef\xbb\xbf{"a": 1}', '{"a": 1}'.encode("utf-16"), '\ufeff{"a": 1}'.encode("utf-16-be")]
)
def test_a_byte_order_mark_names_the_encoding(data: bytes) -> None:
    assert json.loads(json_bytes(data)) == {"a": 1}


def test_sound_json_is_not_copied() -> None:
    data = '{"a": "caf\xe9"}'.encode()
    assert json_bytes(data) is data
    assert whole_json(r'"\\ud83d"') == r'"\\ud83d"'
    with pytest.raises(ValueError, match="deep"):
        read_json("[" * 100_000)
