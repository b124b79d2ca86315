"""`dspark-chat serve`: the OpenAI and Anthropic APIs on this machine, until a signal ends it."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli.parser import add_settings, read_settings
from engine.config import Config
from engine.decoding.chunk_budget import STALL_MS
from engine.errors import DsparkError, UsageError

ENV_KEY = "DSPARK_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where")
    where.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    where.add_argument("--port", type=int, default=8080, help="port (default 8080; 0 picks a free one)")
    access = parser.add_argument_group("access")
    access.add_argument("--api-key", action="append", default=[], metavar="KEY", help=f"or {ENV_KEY} (repeatable)")
    access.add_argument("--api-key-file", metavar="FILE", help="keys, one a line")
    access.add_argument("--allowed-host", action="append", default=[], metavar="NAME", help="further Host names")
    access.add_argument("--allowed-origin", action="append", default=[], metavar="URL", help="browser origins")
    serving = parser.add_argument_group("serving")
    serving.add_argument("--max-batch", type=int, default=4, metavar="N", help="requests decoded together (default 4)")
    serving.add_argument(
        "--batch-memory",
        type=int,
        metavar="MB",
        help="memory for what these requests remember; by default what the machine has left, 0 for no limit",
    )
    serving.add_argument(
        "--max-stall",
        type=float,
        default=STALL_MS,
        metavar="MS",
        help=f"longest wait of a running request for a part of another's prompt (default {STALL_MS:g}; 0 for no limit)",
    )
    serving.add_argument(
        "--max-queue", type=int, default=64, metavar="N", help="requests beyond which 429 (default 64)"
    )
    serving.add_argument(
        "--alias", action="append", default=[], metavar="NAME", help="also a name of the model; * and ?"
    )
    serving.add_argument("--max-tokens-cap", type=int, default=32768, metavar="N", help="longest answer to any request")
    serving.add_argument("--reasoning-effort", metavar="LEVEL", help="for clients that do not give one")
    serving.add_argument("--no-model", action="store_true", help="start empty; load by POST /admin/load")
    serving.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    serving.add_argument("-q", "--quiet", action="store_true", help="no progress and no access log")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    config = read_settings(args)
    settings = _settings(args, config)
    serving = _serving(args)
    logging.basicConfig(
        level=logging.WARNING if args.quiet else args.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    from server.app import App
    from server.generation.engine_holder import Holder
    from server.run import Server, listen

    sockets = [listen(settings)]
    settings = _with_port(settings, sockets[0].getsockname()[1])
    holder = Holder(_opener(config, serving))
    server = Server(App(holder, settings), settings)
    failure: list[DsparkError] = []
    if not args.no_model:
        load = _loader(holder, config, serving, failure, lambda: setattr(server, "should_exit", True))
        holder.state = "loading"
        threading.Thread(target=load, name="dspark-load", daemon=True).start()
    if not args.quiet:
        print(f"Listening on http://{_authority(settings.host, settings.port)}", file=sys.stderr, flush=True)
    try:
        server.run(sockets=sockets)
    finally:
        holder.unload()
    if failure:
        raise failure[0]
    return 0


def _settings(args: argparse.Namespace, config: Config) -> Any:
    from server.http.middleware import is_loopback
    from server.settings import Settings

    keys = [*args.api_key, *os.environ.get(ENV_KEY, "").split()]
    if args.api_key_file:
        try:
            keys += Path(args.api_key_file).expanduser().read_text(encoding="utf-8").split()
        except OSError as error:
            raise UsageError(f"The key file {args.api_key_file} cannot be read ({error.strerror}).") from error
    if not is_loopback(args.host) and not keys:
        raise UsageError(
            f"Listening on {args.host} opens the server to other machines: give --api-key, or leave out --host."
        )
    if args.reasoning_effort:
        config = config.over({"effort": args.reasoning_effort}, "--reasoning-effort")
    return Settings(
        host=args.host,
        port=args.port,
        keys=tuple(keys),
        allowed_hosts=tuple(args.allowed_host),
        allowed_origins=tuple(args.allowed_origin),
        aliases=tuple(args.alias),
        config=config,
        max_tokens_cap=args.max_tokens_cap,
        max_queue=args.max_queue,
    )


def _serving(args: argparse.Namespace) -> dict[str, Any]:
    """How requests share the engine."""
    memory: int | None = args.batch_memory
    if args.max_batch < 1 or (memory is not None and memory < 0) or not args.max_stall >= 0:
        raise UsageError("--max-batch is at least 1, --batch-memory and --max-stall are at least 0.")
    return {
        "max_batch": args.max_batch,
        "state_bytes": None if memory is None else memory << 20,
        "stall_ms": args.max_stall,
    }


def _with_port(settings: Any, port: int) -> Any:
    from dataclasses import replace

    return replace(settings, port=port)


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _opener(config: Config, serving: dict[str, Any]) -> Callable[[str, dict[str, Any]], Any]:
    def open_(model: str, options: dict[str, Any]) -> Any:
        from dataclasses import replace

        from engine.load import load_session

        given = {name: options[name] for name in ("drafter", "cap", "context") if name in options}
        wanted = replace(config, model=model).over(given, "request")
        chosen = {"max_batch": options["max_batch"]} if "max_batch" in options else {}
        return load_session(wanted, **{**serving, **chosen})

    return open_


def _loader(
    holder: Any, config: Config, serving: dict[str, Any], failure: list[DsparkError], stop: Callable[[], None]
) -> Callable[[], None]:
    """Loads the model while the server already answers that it is loading."""

    def load() -> None:
        from cli.progress import Reporter
        from engine.load import load_session

        reporter = Reporter(sys.stderr, quiet=logging.getLogger().level > logging.INFO, verbose=True)
        try:
            engine = load_session(config, reporter.progress, **serving)
        except DsparkError as error:
            failure.append(error)
            stop()
            return
        finally:
            reporter.done()
        holder.adopt(engine)
        logging.getLogger("dspark.server").info("serving %s with drafter %s", holder.name, engine.drafter)

    return load
