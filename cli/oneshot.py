"""One answer without a screen: arguments and standard input in, text or JSON out, exit code back.

Standard output carries the answer and nothing else; progress, notes and statistics go to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TextIO

from cli.progress import Reporter
from engine.config import Config
from engine.core import Event, Failed, Finished, Prefilled, Request, Round, Source, Tokens
from engine.errors import UsageError
from engine.sanitize import Sanitizer

_COLOURS = {Source.DRAFT: "\x1b[32m", Source.LOOKUP: "\x1b[36m", Source.TARGET: ""}
_RESET = "\x1b[0m"


class Ticket(Protocol):
    def __iter__(self) -> Any: ...
    def cancel(self) -> None: ...


class Answering(Protocol):
    """What a single answer needs of an engine."""

    def submit(self, request: Request) -> Ticket: ...
    def close(self) -> None: ...


def is_one_shot(args: argparse.Namespace) -> bool:
    """Whether there is something to answer: words, or text waiting on standard input."""
    return bool(args.prompt) or args.json or args.jsonl or not sys.stdin.isatty()


def run(args: argparse.Namespace, config: Config) -> int:
    """Answer once.

    Raises:
        DsparkError: with one sentence.
    """
    from engine.session import open_session

    prompt = gather(args.prompt, sys.stdin)
    if not prompt.strip() and not args.image:
        raise UsageError("There is no prompt: give some words, or text on standard input.")
    reporter = Reporter(sys.stderr, quiet=args.quiet, verbose=args.verbose)
    engine = open_session(config, reporter.progress)
    reporter.done()
    try:
        if not args.quiet and (note := idle_note(config)):
            print(f"dspark-chat: {note}", file=sys.stderr)
        request = make_request(engine, config, prompt, args.image)
        writer = Writer(sys.stdout, args, engine, config)
        try:
            return answer(engine, request, writer, sys.stderr if args.verbose else None)
        finally:
            sys.stdout.flush()
    finally:
        engine.close()


def gather(words: Sequence[str], stdin: TextIO) -> str:
    """Standard input first, then the words, as a reader of the two would expect."""
    piped = "" if stdin.isatty() else stdin.read()
    return "\n\n".join(part for part in (piped.rstrip("\n"), " ".join(words)) if part.strip())


def idle_note(config: Config) -> str:
    """A drafter was asked for and can never draft: say so instead of loading it in silence."""
    if config.cap == 0 and config.drafter not in ("auto", "none"):
        return f"cap 0 means plain decoding: drafter {config.drafter} is loaded and will not draft."
    return ""


def make_request(engine: Any, config: Config, prompt: str, images: Sequence[str]) -> Request:
    """The prompt under the chat template, pictures included."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": config.system}] if config.system else []
    messages.append({"role": "user", "content": prompt})
    if images:
        return _with_pictures(engine, config, messages, images)
    ready = engine.format.prompt(messages)
    return config.request(ready.ids, boundaries=ready.boundaries)


def _with_pictures(engine: Any, config: Config, messages: list[dict[str, Any]], images: Sequence[str]) -> Request:
    from engine.vision import check_pictures, read_picture

    pictures = [read_picture(Path(image).expanduser()) for image in images]
    eye = getattr(engine.target, "eye", None)
    check_pictures(engine.spec.name, eye, pictures)
    text = messages[-1]["content"]
    messages[-1]["content"] = [*({"type": "image"} for _ in pictures), {"type": "text", "text": text}]
    ids = engine.format.render(messages)
    seen = engine.run_exclusive(lambda: eye.prompt(ids, pictures))
    return config.request(seen.ids, embeddings=seen.embeddings, media=seen.media)


def answer(engine: Answering, request: Request, writer: Writer, stats: TextIO | None) -> int:
    """Submit, write events as they come, and keep what was written when the user interrupts."""
    began = time.monotonic()
    ticket = engine.submit(request)
    interrupted = False
    events = iter(ticket)
    while True:
        try:
            event = next(events, None)
            if event is None:
                break
            writer.event(event)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            ticket.cancel()
        except BrokenPipeError:
            ticket.cancel()
            raise
    writer.end()
    if writer.failed is not None:
        raise writer.failed.error
    if stats is not None:
        print(writer.summary(time.monotonic() - began), file=stats)
    return 130 if interrupted else 0


class Writer:
    """Turns events into the output that was asked for. Everything the model says passes one filter of controls."""

    def __init__(self, out: TextIO, args: argparse.Namespace, engine: Any, config: Config) -> None:
        self.out = out
        self.mode = "json" if args.json else "jsonl" if args.jsonl else "text"
        self.stream = not args.no_stream
        self.coloured = self.mode == "text" and wants_colour(args.color, out)
        self.model = str(engine.spec.name)
        self.config = config
        self.failed: Failed | None = None
        self.finished: Finished | None = None
        self.prefilled: Prefilled | None = None
        self.rounds: list[Round] = []
        self.runs: list[tuple[Source, str]] = []
        self._filter = Sanitizer()
        self._held: list[str] = []
        self._colour = ""

    def event(self, event: Event) -> None:
        match event:
            case Tokens():
                self._text((piece.source, piece.text) for piece in event.pieces)
            case Round():
                self.rounds.append(event)
            case Prefilled():
                self.prefilled = event
            case Finished():
                self.finished = event
            case Failed():
                self.failed = event
            case _:
                pass
        if self.mode == "jsonl":
            self.out.write(json.dumps(as_json(event), ensure_ascii=False) + "\n")
            self.out.flush()

    def _text(self, pieces: Iterable[tuple[Source, str]]) -> None:
        for source, text in pieces:
            shown = self._filter.feed(text)
            if not shown:
                continue
            if self.runs and self.runs[-1][0] == source:
                self.runs[-1] = (source, self.runs[-1][1] + shown)
            else:
                self.runs.append((source, shown))
            if self.mode == "text":
                self._put(self._paint(source) + shown)
        if self.mode == "text" and self.stream:
            self.out.flush()

    def _paint(self, source: Source) -> str:
        if not self.coloured or _COLOURS[source] == self._colour:
            return ""
        before, self._colour = self._colour, _COLOURS[source]
        return (_RESET if before else "") + self._colour

    def _put(self, text: str) -> None:
        if self.stream:
            self.out.write(text)
        else:
            self._held.append(text)

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.runs)

    def end(self) -> None:
        """Whatever closes the output: a newline, the object."""
        if self.mode == "json" and self.failed is None:
            self.out.write(json.dumps(self.object(), ensure_ascii=False, indent=2) + "\n")
        elif self.mode == "text":
            tail = _RESET if self._colour else ""
            newline = "" if self.text.endswith("\n") or not self.text else "\n"
            self.out.write("".join(self._held) + tail + newline)
        self.out.flush()

    def object(self) -> dict[str, Any]:
        finished = self.finished
        return {
            "model": self.model,
            "text": self.text,
            "finish_reason": finished.reason if finished else None,
            "tokens": list(finished.tokens) if finished else [],
            "provenance": [[source.value, len(text)] for source, text in self.runs],
            "drafter": self.rounds[-1].drafter if self.rounds else "none",
            "usage": asdict(finished.usage) if finished else {},
            "settings": self.config.as_dict(),
        }

    def summary(self, seconds: float) -> str:
        """One line: active drafter, acceptance, tokens a round, speed, time to the first token."""
        usage = self.finished.usage if self.finished else None
        if usage is None:
            return "[no answer]"
        drafter = self.rounds[-1].drafter if self.rounds else "none"
        accept = f"accept {usage.accepted / usage.drafted:.2f}" if usage.drafted else "nothing drafted"
        per_round = usage.completion / max(1, usage.rounds)
        rate = max(0, usage.completion - 1) / usage.decode_ms * 1000 if usage.decode_ms else 0.0
        speed = f"{per_round:.1f}/round · {rate:.1f} tok/s"
        return f"[{drafter} · {accept} · {speed} · {usage.completion} tokens in {seconds:.1f} s]"


def wants_colour(choice: str, out: TextIO) -> bool:
    """`always` and `never` are obeyed; otherwise a terminal that is not dumb, and no NO_COLOR."""
    if choice != "auto":
        return choice == "always"
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def as_json(event: Event) -> dict[str, Any]:
    """An event as plain data, named by its class in lower case. Control characters are escaped by JSON itself."""
    if isinstance(event, Failed):
        return {"event": "failed", "request": event.request, "error": event.message, "kind": type(event.error).__name__}
    values: Mapping[str, Any] = asdict(event)
    return {"event": type(event).__name__.lower(), **values}
