"""`max_tokens: -1`, which other programs send for no limit: as much as fits, whatever the dialect."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import Script

from server.settings import Settings

USER = [{"role": "user", "content": "hi"}]
ASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": USER, "max_tokens": -1}),
    "chat, the newer name": ("/v1/chat/completions", {"messages": USER, "max_completion_tokens": -1}),
    "completions": ("/v1/completions", {"prompt": "hi", "max_tokens": -1}),
    "responses": ("/v1/responses", {"input": "hi", "max_output_tokens": -1}),
    "messages": ("/v1/messages", {"messages": USER, "max_tokens": -1}),
}


@pytest.mark.parametrize("ask", ASKS)
def test_no_limit_is_as_much_as_fits(start: Any, ask: str) -> None:
    live = start(Script("Hello"), settings=Settings(max_tokens_cap=1 << 20))
    path, body = ASKS[ask]
    assert live.http.post(path, json=body).status_code == 200
    request = live.engine.requests[-1]
    assert request.max_tokens == live.engine.spec.context - len(request.prompt)


@pytest.mark.parametrize("most", [0, -2])
@pytest.mark.parametrize("ask", ASKS)
def test_other_limits_below_one_are_refused(start: Any, ask: str, most: int) -> None:
    path, body = ASKS[ask]
    answer = start(Script("Hello")).http.post(path, json={k: most if v == -1 else v for k, v in body.items()})
    assert answer.status_code == 400
    assert f"takes a whole number from 1 up, not {most}" in answer.json()["error"]["message"]


def test_the_operators_cap_holds(start: Any) -> None:
    live = start(Script("Hello"), settings=Settings(max_tokens_cap=50))
    live.http.post("/v1/chat/completions", json={"messages": USER, "max_tokens": -1})
    assert live.engine.requests[-1].max_tokens == 50
