"""One law in every front end: what a checkpoint recommends, what a person decides, and the limits of both."""

from __future__ import annotations

import json
import math
import os
import queue
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from live_server import Live

from cli.commands.answer import make_request
from engine import config as settings
from engine.config import Config
from engine.diagnostics.race import race
from engine.engine import Engine, Options
from engine.errors import UsageError
from engine.load import open_engine
from engine.types import Event, Sampling
from engine.types.parameters import about, declared
from server.api import completions
from server.api.anthropic import request as anthropic
from server.api.base import _sampled
from server.api.chat_completions import request as chat_completions
from server.api.responses import request as responses
from server.errors import ApiError
from server.settings import Settings
from tui.conversation.session import ChatSession

ROOT = Path(__file__).parents[1]
RECOMMENDED = {"temperature": 1.3, "top_p": 0.95, "top_k": 40, "min_p": 0.01, "repetition_penalty": 1.4}
PROMPT = "Name a colour."
TOKENS = 24
SAMPLED = [f for f in declared(Sampling) if f.name != "logit_bias"]
PARSERS: dict[str, Any] = {
    "chat": (chat_completions, {"messages": [{"role": "user", "content": "x"}]}),
    "completions": (completions, {"prompt": "x"}),
    "responses": (responses, {"input": "x"}),
    "messages": (anthropic, {"messages": [{"role": "user", "content": "x"}]}),
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A checkpoint that recommends everything that one may."""
    assert set(RECOMMENDED) == {f.name for f in SAMPLED if about(f).recommended}
    folder = tmp_path_factory.mktemp("model") / "tiny"
    shutil.copytree(
        ROOT / "tests" / "golden" / "targets" / "tiny-qwen3", folder, ignore=shutil.ignore_patterns("golden")
    )
    file = folder / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "do_sample": True, **RECOMMENDED}))
    with open_engine(folder, name="tiny", options=Options(max_batch=2)) as engine:
        yield engine


def answered(session: ChatSession, turn: Any) -> str:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    session.submit(turn, events.put)
    while session.busy:
        session.apply(events.get(timeout=60))
    assert not turn.answer.error
    return turn.answer.text


def in_app(engine: Engine, **decided: Any) -> ChatSession:
    session = ChatSession(Config().over({"max_tokens": TOKENS, **decided}, "test"))
    session.engine = engine
    return session


# What is decided ------------------------------------------------------------------------------------------------------


def test_one_seed_gives_one_text_in_the_app_on_the_command_line_and_over_http(engine: Engine) -> None:
    session = in_app(engine, seed=7)
    said = answered(session, session.begin(PROMPT))
    assert said not in ("", answered(session, in_app_greedy(engine, session)))

    config = settings.read({"seed": "7", "max_tokens": str(TOKENS)}, Path("/nowhere"), {})
    request = make_request(engine, config, PROMPT, []).request
    assert {name: getattr(request.sampling, name) for name in RECOMMENDED} == RECOMMENDED
    assert engine.submit(request).text() == said

    messages, fields = [{"role": "user", "content": PROMPT}], {"seed": 7}
    live = Live(engine, Settings())
    try:
        post = lambda path, **body: live.http.post(path, json={**fields, **body}).json()  # noqa: E731
        chat = post("/v1/chat/completions", messages=messages, max_tokens=TOKENS)
        response = post("/v1/responses", input=PROMPT, max_output_tokens=TOKENS)
        message = post("/v1/messages", messages=messages, max_tokens=TOKENS)
    finally:
        live.close()
    assert chat["choices"][0]["message"]["content"] == said
    assert response["output"][-1]["content"][0]["text"] == said
    assert message["content"][0]["text"] == said
    assert (response["temperature"], response["top_p"]) == (1.3, 0.95), "the answer says how it was sampled"


def in_app_greedy(engine: Engine, session: ChatSession) -> Any:
    """Another turn, by a law that somebody decided."""
    session.config = session.config.over({"temperature": 0.0, "repetition_penalty": 1.0}, "test")
    return session.begin(session.rewind()[0].user)


def test_the_plain_arm_of_a_race_is_the_next_regeneration(engine: Engine) -> None:
    session = in_app(engine, seed=11, thinking=True, effort="high")
    answered(session, session.begin(PROMPT))
    request = session.question()
    arm = race(engine, replace(request, remember=False), ["none", "lookup"]).arms[0]
    turn = session.begin(session.rewind()[0].user)
    assert arm.text == answered(session, turn)
    assert turn.answer.asked is not None
    assert (list(turn.answer.asked.ids), turn.answer.asked.sampling) == (list(request.prompt), request.sampling)
    assert {name: getattr(request.sampling, name) for name in RECOMMENDED} == RECOMMENDED


def test_a_race_asks_for_the_effort_of_its_chat(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    prompt = engine.format.prompt
    monkeypatch.setattr(engine.format, "prompt", lambda m, **how: asked.append(how) or prompt(m, **how))
    session = in_app(engine, thinking=True, effort="high")
    turn = session.begin(PROMPT)
    answered(session, turn)
    session.question()
    session.question("And another?")
    assert asked == [{"thinking": True, "effort": "high"}] * 3


def test_no_limit_is_as_much_as_fits_on_the_command_line_and_in_the_app(engine: Engine) -> None:
    request = make_request(engine, Config(max_tokens=-1), PROMPT, []).request
    assert request.max_tokens == engine.spec.context - len(request.prompt)
    session = in_app(engine, max_tokens=-1)
    session.begin(PROMPT)
    assert session.question().max_tokens == request.max_tokens


# Limits ---------------------------------------------------------------------------------------------------------------


def outside(setting: Any) -> list[Any]:
    limits, values = about(setting), [math.nan, "odd"]
    values += [] if limits.minimum is None else [limits.minimum - 2]
    return values + ([] if limits.maximum is None else [limits.maximum + 0.5])


@pytest.mark.parametrize("setting", SAMPLED, ids=lambda f: f.name)
def test_every_way_in_has_the_same_limits_and_one_sentence(setting: Any, tmp_path: Path) -> None:
    name, file = setting.name, tmp_path / "config.toml"
    sentence = re.compile(re.escape(settings.takes(setting)) + r", not [^\n]+\.$")
    for value in outside(setting):
        for make in (Sampling, Config, lambda **given: settings.read({name: given[name]}, file, {})):
            with pytest.raises(UsageError, match=sentence):
                make(**{name: value})
        with pytest.raises(UsageError, match=sentence):
            settings.read({}, file, {f"DSPARK_{name.upper()}": str(value)})
        assert getattr(Config().under({"do_sample": True, name: value}), name) == setting.default
        if isinstance(value, float) and math.isnan(value):
            continue  # JSON has no such number
        for module, body in PARSERS.values():
            with pytest.raises(ApiError) as caught:
                module.parse(json.dumps({**body, name: value}).encode(), None)
            assert caught.value.status == 400
            assert caught.value.param == name
            assert isinstance(value, str) or sentence.search(caught.value.message)


@pytest.mark.parametrize("api", PARSERS)
def test_every_api_knows_what_is_declared_for_it(api: str) -> None:
    module, body = PARSERS[api]
    known = _sampled(module._Request, api).__struct_fields__
    for setting in declared(Config):
        for name in about(setting).names_in(api):
            assert name.partition(".")[0] in known
    given = {f.name: about(f).minimum or 0 for f in SAMPLED}
    assert module.parse(json.dumps({**body, **given}).encode(), None).sampling == given


# A parameter more -----------------------------------------------------------------------------------------------------

TOY = {
    "engine/types/sampling.py": (
        "    presence_penalty: float",
        '    top_a: float = _sampled(0.0, "top_a", "drop tokens below this part of p squared", "A", 0, 1, **_LAW)\n',
    ),
    "engine/sampling/sampler.py": (
        "    if sampling.top_p < 1.0 or sampling.min_p > 0.0:",
        "    if sampling.top_a > 0.0:\n"
        "        best = mx.max(probs, axis=-1, keepdims=True)\n"
        "        probs = mx.where(probs >= sampling.top_a * best * best, probs, 0.0)\n"
        "        probs = probs / mx.sum(probs, axis=-1, keepdims=True)\n",
    ),
}
"""File to (what it stands before, what is written): all that a further parameter needs."""
USES_TOY = """
import json, sys
from pathlib import Path
import mlx.core as mx
from engine import config
from engine.errors import UsageError
from engine.sampling.sampler import transform
from engine.types import Sampling
from cli.parser import parser, read_settings
from server.api import completions
from server.api.anthropic import request as anthropic
from server.api.chat_completions import request as chat
from server.api.responses import request as responses
from tui.settings import presets, settings

logits = mx.array([[0.0, -1.0, -4.0]])
kept = [int(mx.sum(transform(logits, Sampling(temperature=1.0, top_a=a)) > 0)) for a in (0.0, 0.5)]
flag = read_settings(parser().parse_args(["--top-a", "0.25", "hello"])).top_a
env = config.read({}, Path("/nowhere"), {"DSPARK_TOP_A": "0.5"}).sampling().top_a
file = Path(sys.argv[1])
file.write_text("top_a = 0.75")
own = config.Config().under({"do_sample": True, "top_a": 0.1}).top_a
users = [{"role": "user", "content": "x"}]
talks, texts = {"messages": users}, {"prompt": "x", "input": "x"}
bodies = [(chat, talks), (completions, texts), (responses, texts), (anthropic, talks)]
served = [m.parse(json.dumps({**body, "top_a": 0.5}).encode(), None).sampling for m, body in bodies]
try:
    Sampling(top_a=2)
except UsageError as error:
    said = str(error)
differ = Sampling(top_a=0.5).at("law") != Sampling().at("law")
print(json.dumps([kept, flag, env, config.read({}, file, {}).top_a, own, served, said, differ,
    "top_a" in presets.holds(), settings.find("top-a").name, "`top_a`" in settings.document()]))
"""


def test_a_further_sampling_parameter_takes_two_files(tmp_path: Path) -> None:
    """The declaration and the transform; flags, environment, file, presets, /set, docs and every API follow."""
    assert len(TOY) <= 4
    for folder in ("engine", "server", "cli", "tui", "themes"):
        ignored = shutil.ignore_patterns("__pycache__", "*.safetensors")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    shutil.copy(ROOT / "dspark_chat.py", tmp_path)
    for name, (before, text) in TOY.items():
        old = (tmp_path / name).read_text(encoding="utf-8")
        assert old.count(before) == 1
        (tmp_path / name).write_text(old.replace(before, text + before), encoding="utf-8")
    command = [sys.executable, "-c", USES_TOY, str(tmp_path / "config.toml")]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "DSPARK_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    refused = "top_a takes a number between 0 and 1, not 2."
    expected = [[3, 2], 0.25, 0.5, 0.75, 0.1, [{"top_a": 0.5}] * 4, refused, True, True, "top_a", True]
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize("name", ["min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"])
def test_a_sampling_parameter_is_named_in_few_files(name: str) -> None:
    """Those whose names mean nothing else."""
    folders = ("engine", "server", "cli", "tui", "themes")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    naming = [p.relative_to(ROOT).as_posix() for p in files if re.search(rf"\b{name}\b", p.read_text(encoding="utf-8"))]
    assert len(naming) <= 4, naming
