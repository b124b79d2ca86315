"""Coding agents on the running server: `dspark-chat claude` and `dspark-chat codex`.

An agent is started with what its environment and its own options offer; no file of its configuration is touched.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from cli.commands.serve import ENV_KEY
from engine.errors import DsparkError, UsageError

_NO_KEY = "local"
"""What agents get as key when the server asks for none; they refuse to start without one."""


@dataclass(frozen=True, slots=True)
class Place:
    """A running server and the model that it serves."""

    url: str
    key: str
    model: str
    context: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    agent = parser.prog.split()[-1]
    parser.set_defaults(agent=agent)
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the server (default http://127.0.0.1:8080)")
    parser.add_argument("--api-key", default=os.environ.get(ENV_KEY, ""), help=f"the server's key, or {ENV_KEY}")
    parser.add_argument("--print", action="store_true", help="print the command and its environment instead")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=f"everything that follows goes to {agent}")


def find(url: str, key: str) -> Place:
    """Ask the server what it serves.

    Raises:
        DsparkError: no server there, no model loaded, or the wrong key.
    """
    url = url.rstrip("/").removesuffix("/v1")
    request = urllib.request.Request(f"{url}/v1/models", headers={"x-api-key": key} if key else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            models: list[dict[str, Any]] = json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        error.close()
        hint = "give its key with --api-key" if error.code == 401 else f"it answered {error.code}"
        raise DsparkError(f"The server at {url} did not let us in: {hint}.") from error
    except (OSError, ValueError, KeyError) as error:
        raise DsparkError(f"There is no server at {url}; start one with: dspark-chat serve") from error
    if not models:
        raise DsparkError(f"The server at {url} has no model loaded (or is still loading); try again shortly.")
    return Place(url, key or _NO_KEY, models[0]["id"], int(models[0]["max_model_len"]))


def claude_environment(place: Place) -> dict[str, str]:
    names = ("", "DEFAULT_OPUS_", "DEFAULT_SONNET_", "DEFAULT_HAIKU_", "SMALL_FAST_")
    models = {f"ANTHROPIC_{n}MODEL": place.model for n in names}
    return {
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_AUTH_TOKEN": place.key,
        **models,
        "CLAUDE_CODE_SUBAGENT_MODEL": place.model,
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(place.context),
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(place.context),
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def codex_options(place: Place) -> list[str]:
    provider = "model_providers.dspark"
    values = {
        "model": place.model,
        "model_provider": "dspark",
        "model_context_window": place.context,
        f"{provider}.name": "dspark-chat",
        f"{provider}.base_url": f"{place.url}/v1",
        f"{provider}.wire_api": "responses",
        f"{provider}.env_key": ENV_KEY,
    }
    return [part for name, value in values.items() for part in ("-c", f"{name}={json.dumps(value)}")]


def run(args: argparse.Namespace) -> int:
    place = find(args.url, args.api_key)
    if args.agent == "claude":
        return start(args, "claude", [], claude_environment(place))
    return start(args, "codex", codex_options(place), {ENV_KEY: place.key})


def start(args: argparse.Namespace, program: str, options: list[str], added: dict[str, str]) -> int:
    rest = args.arguments[1:] if args.arguments[:1] == ["--"] else args.arguments
    command = [program, *options, *rest]
    if args.print:
        import shlex

        print(*(f"{name}={shlex.quote(value)}" for name, value in added.items()), shlex.join(command), sep=" \\\n  ")
        return 0
    where = shutil.which(program)
    if where is None:
        raise UsageError(f"{program} is not installed (or not on PATH); install it, or see --print.")
    return os.execve(where, command, {**os.environ, **added})
