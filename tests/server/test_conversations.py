"""Which conversation a request belongs to: what is learned of a drafter's acceptance is kept by it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted import Script

USER = {"role": "user", "content": "Name three rivers."}
LATER = [USER, {"role": "assistant", "content": "Rhine."}, {"role": "user", "content": "More."}]
SESSION = "0f3a9c1e-5b7d-4e55-9a51-0c8e2f6d1b23"


def asked(live: Any, path: str, body: dict[str, Any], **headers: str) -> str:
    answer = live.http.post(path, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return live.engine.requests[-1].conversation


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_later_turns_belong_to_the_first(start: Any, path: str) -> None:
    live = start(Script("ok"))
    first = asked(live, path, {"messages": [USER], "max_tokens": 8})
    assert first
    assert asked(live, path, {"messages": LATER, "max_tokens": 8}) == first
    other = [{"role": "user", "content": "Name three lakes."}]
    assert asked(live, path, {"messages": other, "max_tokens": 8}) not in ("", first)


def test_a_stored_response_continues_its_conversation(start: Any) -> None:
    live = start(Script("ok"))
    first = live.http.post("/v1/responses", json={"input": "Name three rivers."}).json()
    begun = live.engine.requests[-1].conversation
    assert asked(live, "/v1/responses", {"input": "More.", "previous_response_id": first["id"]}) == begun


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": [USER], "prompt_cache_key": "k1"}),
        ("/v1/completions", {"prompt": "x", "prompt_cache_key": "k1"}),
        ("/v1/responses", {"input": "x", "prompt_cache_key": "k1"}),
        ("/v1/responses", {"input": "x", "conversation": "k1"}),
        ("/v1/responses", {"input": "x", "conversation": {"id": "k1"}}),
    ],
)
def test_a_name_in_the_body_is_taken(start: Any, path: str, fields: dict[str, Any]) -> None:
    assert asked(start(Script("ok")), path, fields) == "k1"


@pytest.mark.parametrize(
    "user",
    [json.dumps({"device_id": "d" * 64, "session_id": SESSION}), f"user_{'a' * 64}_account__session_{SESSION}"],
)
def test_claude_codes_session_is_found_in_its_user_id(start: Any, user: str) -> None:
    body = {"messages": [USER], "max_tokens": 8, "metadata": {"user_id": user}}
    assert asked(start(Script("ok")), "/v1/messages", body) == SESSION


def test_a_user_alone_is_no_conversation(start: Any) -> None:
    live = start(Script("ok"))
    begun = asked(live, "/v1/messages", {"messages": [USER], "max_tokens": 8})
    body = {"messages": [USER], "max_tokens": 8, "metadata": {"user_id": "somebody"}}
    assert asked(live, "/v1/messages", body) == begun


@pytest.mark.parametrize("header", ["X-Claude-Code-Session-Id", "session_id", "conversation_id"])
def test_a_name_in_a_header_is_taken(start: Any, header: str) -> None:
    live = start(Script("ok"))
    assert asked(live, "/v1/chat/completions", {"messages": [USER]}, **{header: "s1"}) == "s1"
    body = {"messages": [USER], "prompt_cache_key": "k1"}
    assert asked(live, "/v1/chat/completions", body, **{header: "s1"}) == "k1"


def test_raw_text_belongs_to_nothing(start: Any) -> None:
    assert asked(start(Script("ok")), "/v1/completions", {"prompt": "once"}) == ""
