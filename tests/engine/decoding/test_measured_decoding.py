"""Race, certificate and benchmark on a tiny model: numbers, labels, and a planted lie that they must find."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import ScriptedDrafter

from engine.diagnostics.benchmark import bench
from engine.diagnostics.certify import certify
from engine.diagnostics.equivalence import compare
from engine.diagnostics.race import comparable, race
from engine.engine import Engine
from engine.errors import Cancelled, UnknownDrafter, UsageError
from engine.load import open_engine
from engine.types import Piece, Request, Sampling, Source

GOLDEN = Path(__file__).parents[2] / "golden" / "targets" / "tiny-qwen3"
EXPECTED = json.loads((GOLDEN / "golden" / "expected.json").read_text())
PROMPT: list[int] = EXPECTED["prompts"][0]
GREEDY: list[int] = EXPECTED["greedy"][0]
OTHER: list[int] = EXPECTED["prompts"][1]


@pytest.fixture(scope="module")
def engine():
    def right(ids: list[int], k: int) -> list[int]:
        at = len(ids) - len(PROMPT)
        return GREEDY[at : at + k] if ids[: len(PROMPT)] == PROMPT else [ids[-1]] * k

    with open_engine(GOLDEN) as opened:
        opened.add_drafter(ScriptedDrafter(right, name="oracle"))
        yield opened


@pytest.fixture
def lossy(engine: Engine):
    """A decoder with a planted error: one accepted draft of each round is changed."""
    engine.loop.flip = 1
    yield engine
    engine.loop.flip = None


def request(**other) -> Request:
    return Request(tuple(PROMPT), **{"max_tokens": 32, "stop_ids": frozenset(), **other})


def test_a_race_is_compared_and_replayable(engine: Engine):
    result = race(engine, request(), ["none", "oracle", "oracle:2"])
    plain, oracle, pinned = result.arms
    assert list(plain.tokens) == GREEDY[:32]
    assert result.identical
    assert result.ok
    assert result.banner == "identical token ids (32)"
    assert len(oracle.rounds) < len(plain.rounds)
    assert oracle.label.startswith("oracle(≤32), cap auto")
    assert pinned.label == "oracle(≤32), cap 2"
    assert plain.label == "plain"
    assert [oracle.tokens_at(ms) for ms in (-1.0, 0.0, oracle.ms)] == [0, 1, 32]
    counts = [plain.tokens_at(plain.ms * i / 10) for i in range(11)]
    assert counts == sorted(counts)
    assert counts[-1] == 32
    assert len(oracle.sources) == 32
    assert oracle.sources.count(Source.DRAFT) > 16
    assert result.speedup(plain) == 1.0


def test_a_race_tells_how_far_it_is_and_replays_what_was_said(engine: Engine):
    told: list[tuple[str, float]] = []
    heard: dict[int, list[Piece]] = {}
    result = race(
        engine,
        request(),
        ["none", "oracle"],
        progress=lambda what, done: told.append((what, done)),
        watch=lambda arm, pieces: heard.setdefault(arm, []).extend(pieces),
    )
    assert [tuple(heard[i]) for i in (0, 1)] == [arm.pieces for arm in result.arms], "the same while it ran"
    shares = [done for _, done in told]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert len([done for what, done in told if what == "none" and 0.0 < done < 0.5]) > 10
    for arm in result.arms:
        assert "".join(piece.text for piece in arm.pieces) == arm.text
        assert tuple(piece.token for piece in arm.pieces) == arm.tokens
        assert [len(arm.pieces_at(ms)) for ms in (-1.0, arm.ms)] == [0, 32]
        assert arm.rate_at(arm.ms) == pytest.approx(arm.tokens_per_s)
    assert [p.source for p in result.arms[1].pieces] == list(result.arms[1].sources)


def test_a_race_finds_a_planted_lie(lossy: Engine):
    result = race(lossy, request(), ["none", "oracle"])
    assert not result.ok
    verdict = result.arms[1].verdict
    assert verdict is not None
    assert verdict.position == 1
    assert verdict.gap is not None
    assert verdict.gap > 0.05
    assert "NOT a tie" in result.banner


def test_a_race_of_samples_gets_a_seed(engine: Engine):
    sampled = request(sampling=Sampling(temperature=1.0))
    assert comparable(sampled).sampling.seed is not None
    assert race(engine, sampled, ["none", "oracle"]).identical


def test_a_race_refuses_what_it_cannot_show(engine: Engine):
    with pytest.raises(UsageError, match="two to 4"):
        race(engine, request(), ["none"])
    told: list[str] = []
    with pytest.raises(UnknownDrafter):
        race(engine, request(), ["none", "nobody:4"], progress=lambda what, _done: told.append(what))
    assert not told, "nothing ran"
    with pytest.raises(Cancelled):
        race(engine, request(), ["none", "oracle"], stop=lambda: True)


def test_the_certificate_holds_and_says_who_never_drafted(engine: Engine):
    found = certify(engine, [PROMPT, OTHER], ["lookup", "oracle"], caps=(1, 3, None), max_tokens=24)
    assert found.ok
    assert len(found.cases) == 12
    assert "oracle" not in found.idle
    assert found.as_dict()["failures"] == []
    sampled = certify(
        engine, [PROMPT], ["oracle"], caps=(2,), max_tokens=24, sampling=Sampling(temperature=0.8, seed=4)
    )
    assert sampled.ok
    assert sampled.sampled


def test_the_certificate_finds_a_planted_lie(lossy: Engine):
    found = certify(lossy, [PROMPT], ["oracle"], caps=(1, None), max_tokens=24)
    assert not found.ok
    assert len(found.failures) == 2
    assert "NOT a tie" in found.as_dict()["failures"][0]["verdict"]


def test_verdicts(engine: Engine):
    def judge(a: list[int], b: list[int]):
        return engine.run_exclusive(lambda: compare(engine.target, PROMPT, a, b))

    assert judge(GREEDY[:8], GREEDY[:8]).same
    short = judge(GREEDY[:8], GREEDY[:5])
    assert not short.ok
    assert short.position == 5
    assert short.tokens == (GREEDY[5], -1)
    wrong = judge(GREEDY[:8], [*GREEDY[:3], (GREEDY[3] + 1) % engine.spec.vocab_size, *GREEDY[4:8]])
    assert wrong.position == 3
    assert wrong.gap is not None
    assert wrong.gap > 0


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment passes whenever the engine looks at the clock, however busy this machine is."""
    looks = itertools.count(time.perf_counter(), 1e-5)
    clock = SimpleNamespace(**{**vars(time), "perf_counter": lambda: next(looks)})
    for module in ("decoding.loop", "decoding.sequence", "decoding.prefill", "calibration.controlled_run"):
        monkeypatch.setattr(f"engine.{module}.time", clock)


def test_a_benchmark_row_is_made_of_round_records(engine: Engine, steady: None):
    rows = bench(
        engine, [PROMPT, OTHER], ["oracle:3"], trials=2, max_tokens=20, request=Request((0,), stop_ids=frozenset())
    )
    plain, oracle = rows
    assert [plain.mode, oracle.mode] == ["none", "oracle:3"]
    assert plain.per_round == 1.0
    assert plain.ratio.median == 1.0
    assert oracle.tokens_per_s.n == 2
    assert oracle.identical == "identical in 2 of 2"
    rounds = [r for t in oracle.trials for r in t.rounds[1:]]
    assert oracle.acceptance == sum(r.accepted for r in rounds) / sum(len(r.drafted) for r in rounds)
    assert sum(oracle.caps.values()) == len(rounds)
    assert 0.0 <= oracle.host_share < 1.0
    for trial in oracle.trials:
        assert trial.tokens == 19
        # A round that ran ahead counts from the end of the one before, also the moments between two steps.
        assert trial.rounds_ms <= trial.wall_ms


def test_the_panel_and_the_benchmark_say_the_same(engine: Engine):
    """Both add up the same Round records."""
    from tui.conversation.stats import Tally

    row = bench(engine, [PROMPT], ["oracle:3"], trials=1, max_tokens=24, request=Request((0,), stop_ids=frozenset()))[1]
    tally = Tally()
    for round_ in row.trials[0].rounds:
        tally.add(round_)
    assert tally.rate == pytest.approx(row.tokens_per_s.median)
    assert tally.per_round == pytest.approx(row.per_round)
    assert tally.acceptance == pytest.approx(row.acceptance)


def test_rounds_tile_the_clock_when_running_ahead(engine: Engine, steady: None):
    """Plain decoding starts a round before the last one is read; counting both twice would halve its speed."""
    plain = bench(engine, [PROMPT], [], trials=1, max_tokens=60, request=Request((0,), stop_ids=frozenset()))[0]
    (trial,) = plain.trials
    # A round that ran ahead counts from the end of the one before, also the moments between two steps.
    assert 0.7 * trial.wall_ms <= trial.rounds_ms <= trial.wall_ms


def test_o23_a_label_names_all_that_is_active(engine: Engine):
    rows = bench(engine, [OTHER], ["lookup", "oracle", "lookup+oracle", "lookup+oracle:2"], trials=1, max_tokens=24)
    by = {row.mode: row for row in rows}
    assert by["none"].label == "plain"
    assert by["none"].lookup_rounds == by["none"].draft_rounds == 0
    assert "lookup(n 3-4, ≤32)" in by["lookup"].label
    assert by["lookup"].draft_rounds == 0
    assert "lookup" not in by["oracle"].label
    assert by["oracle"].lookup_rounds == 0
    assert "lookup(n 4-5, ≤32) then oracle(≤32)" in by["lookup+oracle"].label
    assert by["lookup+oracle:2"].label.endswith("cap 2")
    assert max(by["lookup+oracle:2"].caps) <= 2


def test_o21_committed_tokens_are_the_ones_delivered(engine: Engine):
    """Drafts behind a stop are never counted, whatever was accepted: sums over rounds equal what came out."""
    stop = GREEDY[5]
    result = race(engine, request(stop_ids=frozenset({stop})), ["none", "oracle:7"])
    oracle = result.arms[1]
    first = GREEDY.index(stop)
    assert list(oracle.tokens) == GREEDY[: first + 1]
    assert sum(r.accepted for r in oracle.rounds) <= first + 1
    assert all(r.accepted <= len(r.tokens) for r in oracle.rounds)


def test_a_benchmark_needs_something_to_do(engine: Engine):
    with pytest.raises(UsageError):
        bench(engine, [], ["none"])
    with pytest.raises(UnknownDrafter):
        bench(engine, [PROMPT], ["nobody:3"])
