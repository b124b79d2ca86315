"""One answer without a screen: arguments and standard input in, text or JSON out, exit code back.

Standard output carries the answer and nothing else; progress, notes and statistics go to standard error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

from cli.answer_writer import Writer, wants_colour
from cli.progress import Reporter
from engine.chat.images import check_pictures, described, read_picture
from engine.chat.prompt import Built, build_request
from engine.config import Config
from engine.errors import UsageError
from engine.types import Request


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
    from engine.load import load_session

    prompt = gather(args.prompt, sys.stdin)
    if not prompt.strip() and not args.image:
        raise UsageError("There is no prompt: give some words, or text on standard input.")
    reporter = Reporter(sys.stderr, quiet=args.quiet, verbose=args.verbose)
    engine = load_session(config, reporter.progress)
    reporter.done()
    begun = time.monotonic()
    try:
        if not args.quiet and (idle := idle_note(config)):
            note(idle)
        config = config.under(engine.generation)
        built = make_request(engine, config, prompt, args.image, None if args.quiet else note)
        writer = Writer(
            sys.stdout,
            "json" if args.json else "jsonl" if args.jsonl else "text",
            stream=not args.no_stream,
            coloured=wants_colour(args.color, sys.stdout),
            splitter=built.splitter,
        )
        code = answer(engine, built.request, writer, {"model": engine.spec.name, "settings": config.as_dict()})
        report(writer, args, time.monotonic() - begun)
        return code
    finally:
        engine.close()


def gather(words: Sequence[str], stdin: TextIO) -> str:
    """Standard input first, then the words, as a reader of the two would expect."""
    piped = "" if stdin.isatty() else stdin.read()
    return "\n\n".join(part for part in (piped.rstrip("\n"), " ".join(words)) if part.strip())


def note(text: str) -> None:
    print(f"dspark-chat: {text}", file=sys.stderr)


def idle_note(config: Config) -> str:
    """A drafter was asked for and can never draft: say so instead of loading it in silence."""
    if config.cap == 0 and config.drafter not in ("auto", "none"):
        return f"cap 0 means plain decoding: drafter {config.drafter} is loaded and will not draft."
    return ""


def make_request(
    engine: Any, config: Config, prompt: str, images: Sequence[str], tell: Callable[[str], None] | None = None
) -> Built:
    """The prompt under the chat template, pictures included; `tell` hears what each of these is and costs."""
    content: Any = prompt
    pictures: list[Any] = []
    if images:
        pictures = [read_picture(Path(image).expanduser()) for image in images]
        # Before the template: one of a text model may refuse the shape in words of its own.
        check_pictures(engine.spec.name, getattr(engine.target, "eye", None), pictures)
        content = [*({"type": "image"} for _ in pictures), {"type": "text", "text": prompt}]
    system = [{"role": "system", "content": config.system}] if config.system else []
    built = build_request(engine, [*system, {"role": "user", "content": content}], config, pictures)
    for picture, rows in zip(pictures, built.rows, strict=True):
        if tell is not None:
            tell(described(picture, rows))
    return built


def answer(engine: Answering, request: Request, writer: Writer, about: dict[str, Any]) -> int:
    """Submit, write events as they come, and keep what was written when the user interrupts.

    Raises:
        Exception: what the request failed with.
    """
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
    writer.end(about)
    if writer.failed is not None:
        raise writer.failed.error
    return 130 if interrupted else 0


def report(writer: Writer, args: argparse.Namespace, seconds: float) -> None:
    """What a person should know about the answer, on standard error."""
    if not args.quiet and writer.reasoning and not writer.text:
        print("dspark-chat: the model was still thinking when it had to end; raise --max-tokens.", file=sys.stderr)
    if args.verbose:
        print(writer.summary(seconds), file=sys.stderr)
