"""`serve`, `claude` and `codex` as a person starts them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted import Script

from server.settings import Settings

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "golden" / "targets" / "tiny-qwen3"


def command(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "dspark_chat.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **(env or {})},
    )


def test_the_agent_commands_print_what_they_would_start(start: Any) -> None:
    live = start(Script("x"), Settings(keys=("sk-1",)))
    for agent, wanted in (("claude", "ANTHROPIC_BASE_URL"), ("codex", "wire_api")):
        done = command(agent, "--url", live.url, "--api-key", "sk-1", "--print")
        assert done.returncode == 0, done.stderr
        assert wanted in done.stdout
        assert live.url in done.stdout
        assert "toy-model" in done.stdout
        refused = command(agent, "--url", live.url, "--print")
        assert refused.returncode == 1
        assert "--api-key" in refused.stderr


def test_an_agent_without_a_server_or_a_program_says_so(start: Any) -> None:
    done = command("claude", "--url", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "dspark-chat serve" in done.stderr
    live = start(Script("x"))
    done = command("codex", "--url", live.url, env={"PATH": "/nonexistent"})
    assert done.returncode == 2
    assert "codex is not installed" in done.stderr


def test_an_agent_gets_its_arguments_and_environment(start: Any, tmp_path: Path) -> None:
    live = start(Script("x"))
    fake = tmp_path / "claude"
    fake.write_text('#!/bin/sh\necho "$ANTHROPIC_BASE_URL $ANTHROPIC_MODEL" "$@"\n')
    fake.chmod(0o755)
    done = command("claude", "--url", live.url, "--", "-p", "hi there", env={"PATH": str(tmp_path)})
    assert done.stdout == f"{live.url} toy-model -p hi there\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--host", "0.0.0.0"), 2, "--api-key"),
        (("--api-key-file", "/nonexistent"), 2, "key file"),
        (("--port", "99999"), 2, "--port"),
        (("--temperature", "hot"), 2, "temperature"),
        (("-m", "/nonexistent/model"), 2, "/nonexistent/model"),
        (("--batch-memory", "-1"), 2, "--batch-memory"),
        (("--max-batch", "0"), 2, "--max-batch"),
        (("--max-stall", "nan"), 2, "--max-stall"),
    ],
)
def test_bad_starts_are_one_sentence(arguments: tuple[str, ...], code: int, words: str, tmp_path: Path) -> None:
    done = command(
        "serve",
        "-q",
        *(() if "--port" in arguments else ("--port", "0")),
        *arguments,
        env={"DSPARK_HOME": str(tmp_path)},
    )
    assert done.returncode in (1, code)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_said_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = command("serve", "-m", "/no/such/model", "--port", str(taken.getsockname()[1]))
        assert done.returncode == 2
        assert "--port" in done.stderr
        assert "/no/such/model" not in done.stderr


@contextlib.contextmanager
def served(tmp_path: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """On a port that the system chose, which the program says."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "dspark_chat.py"), "serve", "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DSPARK_HOME": str(tmp_path)},
    )
    try:
        assert process.stderr is not None
        said = next(line for line in process.stderr if line.startswith("Listening on "))
        yield said.removeprefix("Listening on ").strip(), process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


def until_ok(url: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        time.sleep(0.2)
    raise TimeoutError(url)


def test_serve_loads_answers_reloads_and_ends_with_0(tmp_path: Path) -> None:
    arguments = ("-m", str(TINY), "--api-key", "k", "--alias", "other", "--temperature", "0.5", "--max-tokens", "7")
    with served(tmp_path, *arguments) as (url, process):
        until_ok(url)
        client = httpx.Client(base_url=url, headers={"x-api-key": "k"}, timeout=60, trust_env=False)
        with client:
            models = client.get("/v1/models").json()["data"]
            assert [m["id"] for m in models] == ["tiny-qwen3", "other"]
            body = {"model": "other", "messages": [{"role": "user", "content": "hi"}], "seed": 1}
            first = client.post("/v1/chat/completions", json=body).json()
            assert first["usage"]["completion_tokens"] <= 7
            cache = client.get("/admin/cache").json()
            assert cache["entries"] >= 1
            assert client.delete("/admin/cache").json()["entries"] == 0
            assert client.post("/admin/unload").json()["state"] == "no_model"
            assert client.post("/v1/chat/completions", json=body).status_code == 503
            assert client.post("/admin/load", json={"model": "/nonexistent"}).status_code in (400, 404, 500)
            assert client.get("/admin/status").json()["state"] == "error"
            assert client.post("/admin/load", json={"model": str(TINY)}).json()["state"] == "ok"
            again = client.post("/v1/chat/completions", json=body).json()
            assert again["choices"] == first["choices"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr is not None
        log = process.stderr.read()
        assert "Traceback" not in log
