"""The stages on a real, tiny model: conversations, features, training, export, and going on after a kill."""

from __future__ import annotations

import argparse
import errno
import io
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from cli.commands import train
from engine.drafters.load import load_drafter
from engine.engine import Options
from engine.errors import DsparkError, NoSpace, UsageError
from engine.load import open_engine
from engine.training import settings, terminal_plot
from engine.training.data import conversations, features
from engine.training.data.blocks import Store
from engine.training.loop import step
from engine.training.model import graft, model
from engine.training.run import Run
from engine.training.settings import Settings
from engine.types import Finished, Request


@pytest.fixture(scope="module")
def engine():
    path = Path(__file__).parents[2] / "golden" / "targets" / "tiny-qwen3"
    with open_engine(path, name="tiny", options=Options(drafter="none", max_batch=4)) as made:
        yield made


@pytest.fixture(autouse=True)
def short_questions(monkeypatch):
    monkeypatch.setattr(conversations, "MAX_QUESTION", 12)


class Quiet:
    def __init__(self):
        self.stages, self.reports = [], []

    def stage(self, name, detail):
        self.stages.append(name)

    def progress(self, done, total):
        pass

    def report(self, report):
        self.reports.append(report)


QUESTIONS = [
    "Continue: You may reproduce",
    "Continue: def wrap(text):",
    "Continue: THIS SOFTWARE",
    "Continue: if lo < 0",
]
SMALL = Settings(
    "tiny", conversations=12, max_tokens=24, draft_vocab=64, rank=32, steps=6, sequences=2, anchors=8, held_out=2,
    save_every=2, evaluate_every=3, intermediate=64, bits=16,
)  # fmt: skip


def test_the_model_writes_its_own_conversations_and_goes_on_after_a_kill(engine, tmp_path):
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    assert conversations.write(engine, whole, 5, max_tokens=20, wave=2) == 5
    conversations.write(engine, broken, 3, max_tokens=20, wave=2)
    with broken.open("a") as file:
        file.write('{"number": 3, "prompt_ids": [1, 2')
    assert len(conversations.read(broken)) == 3
    assert conversations.write(engine, broken, 5, max_tokens=20, wave=2) == 5
    assert broken.read_text() == whole.read_text()


def test_questions_come_from_a_file(engine, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('plain words\n{"user": "asked"}\n{"turns": ["first", "second"]}\n\n')
    assert conversations.prompts(file) == ["plain words", "asked", "first"]
    out = tmp_path / "out.jsonl"
    conversations.write(engine, out, 9, questions=QUESTIONS, max_tokens=20)
    found = conversations.read(out)
    assert [c.user for c in found] == QUESTIONS[: len(found)]
    assert found[0].prompt_ids == tuple(engine.format.render([{"role": "user", "content": QUESTIONS[0]}]))


def test_progress_begins_at_once_and_follows_every_answer(engine, tmp_path):
    seen: list[tuple[int, int]] = []
    conversations.write(engine, tmp_path / "c.jsonl", 3, max_tokens=20, progress=lambda *x: seen.append(x))
    assert seen[0] == (0, 3)
    assert {n for n, _ in seen} == {0, 1, 2, 3}
    assert seen == sorted(seen)


def test_a_greedy_answer_is_what_plain_decoding_says(engine, tmp_path):
    conversations.write(engine, tmp_path / "c.jsonl", 6, max_tokens=20)
    greedy = [c for c in conversations.read(tmp_path / "c.jsonl") if c.temperature == 0.0]
    assert greedy
    for c in greedy[:2]:
        events = engine.submit(Request(list(c.prompt_ids), max_tokens=20, drafter="none"))
        last = next(e for e in events if isinstance(e, Finished))
        assert last.tokens == c.response_ids


def test_a_broken_line_is_named(tmp_path):
    file = tmp_path / "c.jsonl"
    file.write_text('{"prompt_ids": [1]}\n{"prompt_ids": [1], "response_ids": [2]}\n')
    with pytest.raises(UsageError, match="Line 1"):
        conversations.read(file)


def _talk(engine, tmp_path, n=12):
    conversations.write(engine, tmp_path / "talk.jsonl", n, max_tokens=24)
    return conversations.read(tmp_path / "talk.jsonl")


def test_features_are_those_of_a_single_forward_and_survive_a_kill(engine, tmp_path, monkeypatch):
    found, taps = _talk(engine, tmp_path), (1, 3)
    monkeypatch.setattr(features, "GROUP", 4)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    engine.run_exclusive(lambda: features.extract(engine.target, found, taps, whole))

    class Killed(Exception):
        pass

    def dying(done, total):
        if (broken / "done").exists():
            raise Killed

    with pytest.raises(Killed):
        engine.run_exclusive(lambda: features.extract(engine.target, found, taps, broken, progress=dying))
    assert (broken / "done").read_text() == "4"
    engine.run_exclusive(lambda: features.extract(engine.target, found, taps, broken))
    for name in ("taps.f16", "last.f16"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes()
    store = Store.open(whole)
    assert len(store) == len(found)
    size = features.estimate(found, engine.spec.hidden_size, len(taps))
    assert size.bytes == (whole / "taps.f16").stat().st_size + (whole / "last.f16").stat().st_size

    def alone():
        state = engine.target.new_state()
        ids = [*found[2].prompt_ids, *found[2].response_ids]
        with state.begin(len(ids), record=False):
            body = engine.target.body(mx.array([ids]), state, taps)
            return np.array(body.taps[0]), np.array(body.hidden[0])

    for mine, theirs in zip((store.taps, store.last), engine.run_exclusive(alone), strict=True):
        assert np.allclose(mine[store.span(2)].astype(np.float32), theirs, atol=0.02, rtol=2e-3)


def test_features_of_other_conversations_are_not_mixed(engine, tmp_path):
    found = _talk(engine, tmp_path, 4)
    engine.run_exclusive(lambda: features.extract(engine.target, found, (1,), tmp_path / "f"))
    with pytest.raises(UsageError, match="other conversations"):
        engine.run_exclusive(lambda: features.extract(engine.target, found[:2], (1,), tmp_path / "f"))


def test_a_run_makes_a_drafter_that_loads_and_is_lossless(engine, tmp_path):
    watcher = Quiet()
    folder = Run(tmp_path, SMALL, engine, watcher).all()
    assert watcher.stages == ["conversations", "features", "training", "export"]
    assert watcher.reports[-1].judged is not None
    card = (folder / "README.md").read_text()
    assert "tokens a round" in card
    drafter = engine.run_exclusive(lambda: load_drafter(folder, engine.target, name="own"))
    engine.add_drafter(drafter)
    prompt = engine.format.render([{"role": "user", "content": QUESTIONS[0]}])
    texts = [engine.submit(Request(prompt, max_tokens=24, drafter=name)).text() for name in ("none", "own")]
    assert texts[0] == texts[1]
    # A second sitting has nothing left to do, and a DFlash grows out of what is there.
    again = Quiet()
    Run(tmp_path, SMALL, engine, again).all()
    assert again.reports == []
    flash = Settings(**{**_fields(SMALL), "kind": "dflash", "parent": str(tmp_path)})
    out = tmp_path / "flash"
    out.mkdir()
    made = Run(out, flash, engine, Quiet()).all()
    assert engine.run_exclusive(lambda: load_drafter(made, engine.target)).name == "dflash"


def _fields(s):
    return {name: getattr(s, name) for name in s.__slots__}


@pytest.mark.parametrize("layers", [1, 2])
def test_a_graft_keeps_what_the_anchor_said(make, layers):
    bench = make(rank=16, heads=2, kv_heads=2, head_dim=16, layers=layers)
    params = model.init(bench.shape, bench.start, mx.random.key(0))
    from engine.training.data import blocks

    batch = blocks.blocks(bench.store, bench.teacher, bench.members[:6], 20, bench.shape.drafts, seed=0, step=0)
    probe = step.to_block(bench.shape, bench.frozen, batch)
    flash = graft.flash_shape(bench.shape)
    grown = graft.adopt(params, bench.shape, flash, probe)
    spark = model.forward(bench.shape, params, probe).scored[:, :, 0] @ bench.frozen.head.T
    bare = model.backbone(bench.shape, params, probe)[:, :, 0] @ bench.frozen.head.T
    mine = model.backbone(flash, grown, probe)[:, :, 0] @ bench.frozen.head.T
    assert float(mx.mean((mine - spark) ** 2).item()) < 0.5 * float(mx.mean((bare - spark) ** 2).item())
    with pytest.raises(UsageError):
        graft.adopt(params, bench.shape, model.Shape(**{**flash.as_dict(), "layers": 3}), probe)


def test_a_folder_keeps_its_settings(tmp_path):
    settings.keep(tmp_path, SMALL)
    longer = Settings(**{**_fields(SMALL), "budget": 9.0, "steps": 99})
    assert settings.keep(tmp_path, longer).steps == 99
    with pytest.raises(UsageError, match="layers"):
        settings.keep(tmp_path, Settings(**{**_fields(SMALL), "layers": 2}))
    assert settings.load(tmp_path) == longer


@pytest.mark.parametrize(("text", "seconds"), [("2h", 7200), ("45m", 2700), ("1h30m", 5400), ("90s", 90), ("3", 180)])
def test_lengths_of_time(text, seconds):
    assert settings.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "2 days"])
def test_lengths_of_time_that_are_none(text):
    with pytest.raises(UsageError):
        settings.duration(text)


def test_default_taps_rise_and_leave_the_last_layer():
    assert settings.default_taps(30) == (1, 8, 14, 21, 28)
    for layers in range(2, 40):
        taps = settings.default_taps(layers)
        assert list(taps) == sorted(set(taps))
        assert taps[-1] <= layers - 1


def test_the_command_line_reaches_the_settings():
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    found = train.settings_of(
        parser.parse_args(["--out", "x", "--budget", "30m", "--taps", "1,3", "--data", "d.jsonl"])
    )
    assert (found.budget, found.taps, found.conversations) == (1800.0, (1, 3), 0)
    more = train.settings_of(
        parser.parse_args(["--out", "x", "--noise", "0.2", "--weight-decay", "0.05", "--bits", "6"])
    )
    assert (more.noise, more.weight_decay, more.bits) == (0.2, 0.05, 6)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--block", "1"], ["--layers", "0"], ["--rank", "-1"], ["--noise", "-0.1"], ["--weight-decay", "-1"],
        ["--rate", "nan"], ["--conversations", "0"], ["--taps", "1,x"], ["--taps", "3,1"], ["--budget", "soon"],
    ],
)  # fmt: skip
def test_values_that_make_no_sense_are_refused_by_name(wrong):
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    with pytest.raises(UsageError, match=wrong[0] if wrong[0] != "--budget" else "soon"):
        train.settings_of(parser.parse_args(["--out", "x", *wrong]))


TINY = Path(__file__).parents[2] / "golden" / "targets" / "tiny-qwen3"


def _command(*more):
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    return parser.parse_args(["--model", str(TINY), *map(str, more)])


@pytest.mark.parametrize("option", ["--data", "--prompts", "--from", "--model"])
def test_what_is_missing_is_said_before_anything_is_written(tmp_path, option):
    out = tmp_path / "out"
    with pytest.raises(DsparkError, match="There is no"):
        train.run(_command("--out", out, "--yes", option, tmp_path / "none"))
    assert not out.exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another folder"):
        train.run(_command("--out", tmp_path / "file" / "run", "--yes"))


def test_a_disk_that_is_too_small_is_known_before_the_start(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train.shutil, "disk_usage", lambda _: argparse.Namespace(free=1000))
    with pytest.raises(NoSpace, match=r"take .* MB and 1 kB are free"):
        train.run(_command("--out", tmp_path, "--dry-run"))
    assert "Conversations  400 to write" in capsys.readouterr().err


def test_a_disk_that_fills_up_loses_nothing():
    with pytest.raises(NoSpace, match="goes on from here"), train._disk(Path("x")):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_narrow_models_learn_faster_unless_told():
    assert SMALL.peak_rate(576) == 1e-3
    assert SMALL.peak_rate(128) == pytest.approx(4.5e-3)
    assert SMALL.peak_rate(4096) == 2.5e-4
    assert Settings("x", rate=7e-4).peak_rate(128) == 7e-4


def test_taps_must_be_layers_of_the_model(engine, tmp_path):
    with pytest.raises(UsageError, match="layers 0 to 5"):
        Run(tmp_path, Settings(**{**_fields(SMALL), "taps": (1, 9)}), engine, Quiet())


def test_estimates_count_what_is_left(engine, tmp_path):
    found = Run(tmp_path, SMALL, engine, Quiet()).estimate()
    assert found.conversations == 12
    assert found.seconds > 0
    assert found.feature_bytes == found.tokens * (len(settings.default_taps(6)) + 1) * 128 * 2


def test_curves_and_clocks():
    lines = terminal_plot.curve([float(i) for i in range(100)], 20, 4, title="up")
    assert len(lines) == 5
    assert lines[1].startswith(f"{98.25:7.3f}"[:4])
    assert terminal_plot.curve([], 10, 3) == []
    assert terminal_plot.curve([1.0, 1.0], 10, 3)
    assert terminal_plot.bar(0.5, 4) == "━━──"
    assert [terminal_plot.clock(s) for s in (5, 600, 11100)] == ["5 s", "10 min", "3 h 05 min"]


def test_the_screen_draws_over_itself_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    from engine.training.loop.train import Report

    out = Terminal()
    screen = train.Screen(out)
    screen.stage("training", "dspark")
    for n in (1, 2):
        screen.report(Report(n, 10 * n, float(n), n / 4, 3.0 - n, (0.1,), (0.1,), 1.2 if n == 2 else None, 1.2))
    assert "\x1b[" in out.getvalue()
    assert "1.200 tokens a round" in out.getvalue()
    plain = io.StringIO()
    train.Screen(plain).progress(1, 2)
    assert "\x1b" not in plain.getvalue()


def test_no_line_of_the_screen_wraps(monkeypatch):
    """A wrapped line takes two rows of the terminal, and redrawing would leave one of them behind."""
    from engine.training.loop.train import Report

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "24")
    out = Terminal()
    screen = train.Screen(out)
    screen.progress(1000, 20000)
    for n in (1, 2):
        screen.report(Report(123456, 10, 3600.0, n / 4, 1.0, (0.1,), (0.1,), 1.234, 1.345))
    drawn = [line.rpartition("\x1b[J")[2] for line in out.getvalue().split("\n")]
    assert max(len(line) for line in drawn) < 40
    assert any(line.startswith("  held-out 1.234") for line in drawn)
