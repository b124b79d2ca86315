"""Reads a server-sent event stream as (event name, data) pairs."""

from __future__ import annotations

import json
from typing import Any


def events(live: Any, path: str, body: dict[str, Any]) -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    with live.http.stream("POST", path, json=body) as response:
        assert response.status_code == 200, response.read()
        name = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
                out.append((name, data if data == "[DONE]" else json.loads(data)))
                name = ""
    return out
