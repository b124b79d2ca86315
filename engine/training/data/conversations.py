"""The conversations stage: what the model is asked and what it answers, one JSON object a line.

Questions come from a prompt file, or the model writes them itself: given its own chat template up to the user's turn,
it continues with a plausible question. Answers are the model's own, mostly greedy, since a drafter learns how this
model goes on and nothing else. Lines are appended as they are finished; a killed stage goes on with the next one.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from engine.chat.template import ChatFormat
from engine.engine import Engine
from engine.errors import UsageError
from engine.types import Failed, Finished, Request, Round, Sampling

Progress = Callable[[int, int], None]

GREEDY_SHARE = 0.6
"""Of the answers; the rest is sampled, so that the drafter also sees where a greedy answer would not have gone."""
TEMPERATURES = (0.7, 1.0)
MAX_QUESTION = 96
_NEWS = 0.02
"""Of a batch, between two signs of progress."""
_SENTINEL = "\ue000"
_SHORTEST = 14
"""Answers below this hold too few anchors to be worth their features."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One question and one answer, as ids of the model's tokenizer."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    temperature: float = 0.0
    user: str = ""
    finished: bool = True
    number: int = -1
    """Of the question that it came from; -1 in files written elsewhere."""

    def line(self) -> str:
        return json.dumps(asdict(self))


def read(path: Path, limit: int | None = None) -> list[Conversation]:
    """Conversations of a .jsonl or .jsonl.gz file. A last line that a kill cut short is left out.

    Raises:
        UsageError: a line in the middle that is no conversation.
    """
    found: list[Conversation] = []
    lines = list(_lines(path))
    for number, line in enumerate(lines, 1):
        if limit is not None and len(found) >= limit:
            break
        try:
            data: dict[str, Any] = json.loads(line)
            found.append(
                Conversation(
                    tuple(data["prompt_ids"]),
                    tuple(data["response_ids"]),
                    float(data.get("temperature", 0.0)),
                    str(data.get("user", "")),
                    bool(data.get("finished", True)),
                    int(data.get("number", -1)),
                )
            )
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise UsageError(
                f"Line {number} of {path.name} is no conversation (prompt_ids and response_ids); correct or remove it."
            ) from error
    return found


def _lines(path: Path) -> Iterator[str]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        yield from (line for line in file if line.strip())


def prompts(path: Path) -> list[str]:
    """User messages of a prompt file: plain lines, or JSON lines with `user`, `prompt` or `turns`.

    Raises:
        UsageError: no message in it.
    """
    found: list[str] = []
    for line in _lines(path):
        text = line.strip()
        if text.startswith("{"):
            data: dict[str, Any] = json.loads(text)
            turns = data.get("turns") or [data.get("user") or data.get("prompt") or ""]
            text = str(turns[0])
        if text:
            found.append(text)
    if not found:
        raise UsageError(f"{path.name} holds no prompt; write one a line.")
    return found


def opening(chat: ChatFormat, tokenizer: Any) -> list[int]:
    """The template's text before the first user message, as ids.

    Raises:
        UsageError: the template does not show its user turn whole.
    """
    text = tokenizer.decode(chat.render([{"role": "user", "content": _SENTINEL}]), skip_special_tokens=False)
    head, found, _ = text.partition(_SENTINEL)
    if not found or not head:
        raise UsageError(
            "This model's template does not let it write its own questions; give a prompt file with --prompts."
        )
    return list(tokenizer.encode(head, add_special_tokens=False))


def write(
    engine: Engine,
    out: Path,
    count: int,
    *,
    questions: Sequence[str] = (),
    max_tokens: int = 256,
    seed: int = 0,
    wave: int = 32,
    progress: Progress = lambda _a, _b: None,
) -> int:
    """Bring `out` to `count` conversations; returns how many it holds. With `questions`, at most one for each."""
    _drop_torn_line(out)
    old = read(out) if out.exists() else []
    have, number = len(old), max((c.number + 1 for c in old), default=0)
    last = len(questions) if questions else sys.maxsize
    wanted = min(count, last)
    progress(have, wanted)
    with out.open("a", encoding="utf-8") as file:
        while have < wanted and number < last:
            batch = range(number, min(number + wave, number + wanted - have))
            asking = 0.0 if questions else MAX_QUESTION / (MAX_QUESTION + max_tokens)

            def told(share: float, before: int = have, size: int = len(batch)) -> None:
                progress(min(before + int(size * share), wanted), wanted)

            heard = partial(_part, told, 0.0, asking)
            asked = [questions[i] for i in batch] if questions else _ask(engine, batch, seed, heard)
            heard = partial(_part, told, asking, 1.0)
            for conversation in _answer(engine, asked, batch, max_tokens, seed, heard):
                if len(conversation.response_ids) >= _SHORTEST:
                    file.write(conversation.line() + "\n")
                    have += 1
            number = batch.stop
            file.flush()
            progress(have, wanted)
    return have


def _part(told: Callable[[float], None], begin: float, end: float, share: float) -> None:
    """Hand on a share of a part as the share of the whole."""
    told(begin + (end - begin) * share)


def _drop_torn_line(path: Path) -> None:
    """Cut what follows the last line end: the rest of a line that a kill interrupted."""
    if not path.exists():
        return
    data = path.read_bytes()
    keep = data.rfind(b"\n") + 1
    if keep != len(data):
        with path.open("r+b") as file:
            file.truncate(keep)


def _ask(engine: Engine, numbers: Iterable[int], seed: int, told: Callable[[float], None]) -> list[str]:
    head = opening(engine.format, engine.tokenizer.backend)
    jobs = [(head, Sampling(temperature=1.0, seed=_seed(seed, i, 0)), MAX_QUESTION) for i in numbers]
    made = _run(engine, jobs, told)
    return [text.strip() or "Hello" for text, _, _ in made]


def _answer(
    engine: Engine,
    asked: Sequence[str],
    numbers: Iterable[int],
    max_tokens: int,
    seed: int,
    told: Callable[[float], None],
) -> Iterator[Conversation]:
    jobs: list[tuple[list[int], Sampling, int]] = []
    for i, question in zip(numbers, asked, strict=True):
        draw = random.Random(_seed(seed, i, 1))
        greedy = draw.random() < GREEDY_SHARE
        temperature = 0.0 if greedy else draw.choice(TEMPERATURES)
        sampling = Sampling(temperature=temperature, seed=None if greedy else _seed(seed, i, 2))
        jobs.append((engine.format.render([{"role": "user", "content": question}]), sampling, max_tokens))
    for number, question, (prompt, sampling, _), (_, ids, stopped) in zip(
        numbers, asked, jobs, _run(engine, jobs, told), strict=True
    ):
        yield Conversation(tuple(prompt), tuple(ids), sampling.temperature, question, stopped, number)


def _run(
    engine: Engine, jobs: Sequence[tuple[list[int], Sampling, int]], told: Callable[[float], None]
) -> list[tuple[str, tuple[int, ...], bool]]:
    """(text, ids, ended by itself) of each job; they share the engine's batch. `told` hears what share is done."""
    tickets = [
        engine.submit(Request(ids, max_tokens=n, sampling=s, drafter="none", remember=False)) for ids, s, n in jobs
    ]
    results: list[tuple[str, tuple[int, ...], bool]] = []
    best = 0.0
    for ticket, (_, _, most) in zip(tickets, jobs, strict=True):
        said = 0
        for event in ticket:
            if isinstance(event, Round):
                said += len(event.tokens)
                # They share a batch: the others are about as far as this one.
                if said / most >= best + _NEWS:
                    best = min(1.0, said / most)
                    told(best)
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Finished):
                results.append((event.text, event.tokens, event.reason == "stop"))
    told(1.0)
    return results


def _seed(seed: int, number: int, part: int) -> int:
    return (seed * 1_000_003 + number * 8 + part) % 2**31
