"""The agents themselves, against the server on loopback with a scripted engine: each must run a tool and print the end.

Not part of the default run: `pytest -m clients tests/server/test_clients.py`. Packages come from npm at pinned
versions, into the folder that DSPARK_CLIENTS names or a temporary one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from scripted import Script, call_text

from engine.config import Config
from engine.types import Request
from server.settings import Settings

pytestmark = pytest.mark.clients

PACKAGES = (
    "@anthropic-ai/claude-code@2.1.197",
    "@openai/codex@0.171.0",
    "@mariozechner/pi-coding-agent@0.73.1",
    "opencode-ai@1.18.33",
)
MARK = "tool-ran-42"


@pytest.fixture(scope="session")
def clients(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if "clients" not in (request.config.option.markexpr or ""):
        pytest.skip("real clients run only when asked for: -m clients")
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed here")
    folder = Path(os.environ.get("DSPARK_CLIENTS") or tmp_path_factory.mktemp("clients"))
    if not (folder / "node_modules").is_dir():
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if done.returncode:
            pytest.skip(f"npm could not install the clients: {done.stderr[-200:]}")
    return folder / "node_modules"


def binary(modules: Path, *candidates: str) -> str:
    for candidate in candidates:
        found = sorted(modules.glob(candidate))
        if found:
            return str(found[0])
    pytest.skip(f"no {candidates[0]} for this platform")


def play(request: Request, prompt: str) -> Script:
    """One tool call, then the final text once its result is in the prompt."""
    last = prompt.rsplit("<|im_start|>user\n", 1)[-1]
    if f"tool\n{MARK}" in prompt or (MARK in prompt.rsplit("<|im_start|>tool", 1)[-1] and "<|im_start|>tool" in prompt):
        return Script("FINAL-TEXT all done")
    if "usetool" not in last or "Tools:" not in prompt:
        return Script("a short title")
    for name, arguments in (
        ("Bash", {"command": f"echo {MARK}", "description": "say"}),
        ("exec_command", {"cmd": f"echo {MARK}"}),
        ("bash", {"command": f"echo {MARK}", "description": "say"}),
    ):
        if f'"name": "{name}"' in prompt:
            return Script("<think>\nI should run it.\n</think>\n\n" + call_text(name, arguments))
    return Script("no tool that I know")


def run(command: list[str], home: Path, env: dict[str, str], timeout: int = 180) -> subprocess.CompletedProcess[str]:
    base = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "dumb", **env}
    return subprocess.run(
        command, cwd=home, env=base, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
    )


@pytest.fixture
def live(start: Any) -> Any:
    settings = Settings(aliases=("claude-*",), config=Config(max_tokens=4096))
    return start(play, settings, context=200_000, name="local-model")


def claude_env(live: Any) -> dict[str, str]:
    from cli.commands.agents import Place, claude_environment

    place = Place(live.url, "local", "local-model", 200_000)
    return {**claude_environment(place), "DISABLE_AUTOUPDATER": "1"}


@pytest.mark.parametrize("attribution", ["0", "1"])
def test_c01_c02_claude_code_runs_a_tool_and_continues(
    clients: Path, live: Any, tmp_path: Path, attribution: str
) -> None:
    program = binary(clients, "@anthropic-ai/claude-code-linux-x64/claude", "@anthropic-ai/claude-code-*/claude")
    env = {**claude_env(live), "CLAUDE_CODE_ATTRIBUTION_HEADER": attribution}
    options = ["--allowedTools", "Bash(echo:*)", "--output-format", "stream-json", "--verbose"]
    done = run([program, "-p", "please usetool", *options], tmp_path, env)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    assert MARK in done.stdout
    assert "FINAL-TEXT" in done.stdout
    assert len(live.engine.requests) <= 3
    assert all("x-anthropic-billing" not in p for p in live.engine.prompts)
    first = live.engine.requests[0]
    done = run([program, "-p", "--continue", "and again", *options], tmp_path, env)
    assert done.returncode == 0, done.stderr[-2000:]
    live.engine.history = [list(r.prompt) for r in live.engine.requests[:-1]]
    assert live.engine._cached(list(live.engine.requests[-1].prompt)) >= 0.95 * len(first.prompt)


def test_c03_codex_runs_a_tool(clients: Path, live: Any, tmp_path: Path) -> None:
    from cli.commands.agents import Place, codex_options

    program = binary(
        clients, "@openai/codex-linux-x64/vendor/*/codex/codex", "@openai/codex*/**/bin/codex", ".bin/codex"
    )
    options = codex_options(Place(live.url, "local", "local-model", 200_000))
    env = {"CODEX_HOME": str(tmp_path / ".codex"), "DSPARK_API_KEY": "local"}
    (tmp_path / ".codex").mkdir()
    done = run(
        [program, "exec", *options, "--skip-git-repo-check", "--ephemeral", "--json", "please usetool"], tmp_path, env
    )
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    commands = [
        e["item"] for e in events if e.get("type") == "item.completed" and e["item"]["type"] == "command_execution"
    ]
    assert MARK in commands[0]["aggregated_output"]
    assert any("FINAL-TEXT" in json.dumps(e) for e in events)
    usage = next(e["usage"] for e in events if e["type"] == "turn.completed")
    assert usage["cached_input_tokens"] > 0


def test_c04_opencode_with_two_concurrent_requests(clients: Path, live: Any, tmp_path: Path) -> None:
    program = binary(clients, "opencode-linux-x64/bin/opencode", "opencode-*/bin/opencode", ".bin/opencode")
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "local",
        "options": {"baseURL": f"{live.url}/v1", "apiKey": "local"},
        "models": {"local-model": {"name": "local-model", "limit": {"context": 200000, "output": 4000}}},
    }
    config = {"provider": {"local": provider}, "model": "local/local-model", "permission": {"bash": "allow"}}
    (tmp_path / "opencode.json").write_text(json.dumps(config))
    env = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    done = run([program, "run", "please usetool"], tmp_path, env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "FINAL-TEXT" in done.stdout + done.stderr
    assert any(MARK in p for p in live.engine.prompts)


@pytest.mark.parametrize("api", ["openai-completions", "anthropic-messages", "openai-responses"])
def test_c05_pi_in_three_dialects(clients: Path, live: Any, tmp_path: Path, api: str) -> None:
    program = binary(clients, ".bin/pi")
    base = live.url if api == "anthropic-messages" else f"{live.url}/v1"
    model = {
        "id": "local-model",
        "name": "local",
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": 200000,
        "maxTokens": 4000,
    }
    folder = tmp_path / ".pi" / "agent"
    folder.mkdir(parents=True)
    provider = {"baseUrl": base, "apiKey": "local", "api": api, "models": [model]}
    (folder / "models.json").write_text(json.dumps({"providers": {"stub": provider}}))
    env = {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}
    done = run([program, "-p", "--no-session", "--model", "stub/local-model", "please usetool"], tmp_path, env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "FINAL-TEXT all done" in done.stdout
    assert any(MARK in p for p in live.engine.prompts)
