"""Measuring a tiny model through the real loop: shapes, honesty about what is missing, and the engine's own book."""

from __future__ import annotations

import math
import random
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import ByteTokenizer, ScriptedDrafter, tiny_llama

from engine.calibration import calibrator as session
from engine.calibration.calibrator import LOOKUP, Calibrator
from engine.calibration.measure import measure
from engine.calibration.meter import rising
from engine.calibration.store import Store
from engine.decoding.draft_length.acceptance import Acceptance, Timings
from engine.decoding.draft_length.controller import Controller
from engine.decoding.draft_length.cost_model import Costs, Curve
from engine.decoding.loop import Loop
from engine.drafters.chain import NONE, Chain
from engine.drafters.prompt_lookup import Lookup
from engine.errors import Cancelled

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6] * 4


class Clock:
    """Half a millisecond passes whenever somebody looks, however busy this machine is."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.0005
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for timed in ("meter", "measure_batches"):
        monkeypatch.setattr(f"engine.calibration.{timed}.time", SimpleNamespace(monotonic=made, perf_counter=made))
    return made


@pytest.fixture(scope="module")
def loop() -> Loop:
    return Loop(tiny_llama(layers=2, vocab=ByteTokenizer.vocab_size))


def drafter(name: str = "tiny", longest: int = 4) -> ScriptedDrafter:
    return ScriptedDrafter(lambda ids, k: [7] * k, name=name, max_draft=longest, taps=(0, 1))


def test_curves_cover_every_width_and_never_fall(loop: Loop):
    said: list[float] = []
    found = measure(
        loop, ByteTokenizer(), [drafter()], PROMPT, budget_s=1.0, progress=lambda _, done: said.append(done)
    )
    assert {w for w, _ in found.verify.points} >= {1, 2, 3, 4, 5, 8, 33}
    times = [ms for _, ms in found.verify.points]
    assert times == sorted(times)
    assert times[0] > 0
    assert [c for c, _ in found.drafts["tiny"].points] == [1, 2, 3, 4]
    assert 0 < found.priors["tiny"].first < 0.7, "a constant guess is rarely right"
    assert said == sorted(said)
    assert said[-1] == 1.0
    assert found.slope(1) >= 0.0
    assert not found.refused
    assert found.batch == {}


def test_a_batch_has_a_grid_of_its_own(loop: Loop):
    found = measure(loop, ByteTokenizer(), [], PROMPT, budget_s=0.2, most_rows=3)
    assert sorted(found.batch) == [2, 3]
    assert [w for w, _ in found.batch[2].points] == [1, 2, 4, 8]
    costs = found.costs("lookup")
    assert costs.verify_ms(4, rows=3) == found.batch[3](4)
    assert not found.refused


class Together(ScriptedDrafter):
    """Takes a moment for any number of rows."""

    asked: list[int]
    clock: Clock

    def propose_rows(self, contexts: Any, pendings: Any, ks: Any, samplers: Any) -> Any:
        self.asked.append(len(contexts))
        self.clock.now += 0.02
        return [self.propose(*row) for row in zip(contexts, pendings, ks, samplers, strict=True)]


def test_drafts_for_several_rows_have_a_price_of_their_own(loop: Loop, clock: Clock):
    both = Together(lambda ids, k: [7] * k, name="both", max_draft=4, taps=(0, 1))
    block = Together(lambda ids, k: [7] * k, name="block", max_draft=4, taps=(0, 1))
    block.full_block = True  # pyright: ignore[reportAttributeAccessIssue]
    both.asked, block.asked = [], []
    both.clock = block.clock = clock
    found = measure(loop, ByteTokenizer(), [both, block, drafter("alone")], PROMPT, budget_s=20, most_rows=3)
    assert sorted(found.draft_batch["both"]) == sorted(found.draft_batch["block"]) == [2, 3]
    assert [c for c, _ in found.draft_batch["both"][3].points] == [1, 4]
    assert len(found.draft_batch["block"][3].points) == 1
    assert found.draft_batch["alone"] == {}
    assert set(both.asked) == {2, 3}
    costs = found.costs("both")
    assert costs.draft_ms(4, 3) == found.draft_batch["both"][3](4) > 10
    assert not found.refused


def test_without_time_left_drafts_are_priced_one_by_one(loop: Loop, clock: Clock):
    both = Together(lambda ids, k: [7] * k, name="both", max_draft=4, taps=(0, 1))
    both.asked, both.clock = [], clock
    found = measure(loop, ByteTokenizer(), [both], PROMPT, budget_s=0.0, most_rows=2)
    assert found.draft_batch["both"] == {}
    assert "time" in found.refused["drafts of both for 2 at once"]
    assert found.costs("both").draft_ms(4, 2) == 2 * found.drafts["both"](4)


def test_a_full_block_drafter_has_one_price(loop: Loop):
    block = drafter("block", 6)
    block.full_block = True  # pyright: ignore[reportAttributeAccessIssue]
    found = measure(loop, ByteTokenizer(), [block], PROMPT, budget_s=0.5)
    assert len(found.drafts["block"].points) == 1


def test_a_short_context_says_why_there_is_no_slope():
    target = tiny_llama(layers=1)
    target.spec = replace(target.spec, context=256)
    found = measure(Loop(target), ByteTokenizer(), [], PROMPT, budget_s=0.3)
    assert "context window" in found.refused["slope"]
    assert found.slope(4) == 0.0


def test_it_can_be_stopped(loop: Loop):
    with pytest.raises(Cancelled):
        measure(loop, ByteTokenizer(), [], PROMPT, stop=lambda: True)


def test_noise_is_pooled_into_a_rising_curve():
    assert rising({1: 10, 2: 9, 3: 12, 4: 11, 5: 20}, flat=False).points == (
        (1, 9.5),
        (2, 9.5),
        (3, 11.5),
        (4, 11.5),
        (5, 20.0),
    )


class Host:
    """What a Calibrator needs of an engine."""

    def __init__(self, loop: Loop, *learned: ScriptedDrafter) -> None:
        self.loop = loop
        self.tokenizer: Any = ByteTokenizer()
        chains = [NONE, Chain("lookup", (Lookup(),))]
        for d in learned:
            chains += [Chain(d.name, (d,)), Chain(f"lookup+{d.name}", (Lookup(), d))]
        self.chains = {c.name: c for c in chains}
        self.exclusive = 0

    @property
    def spec(self) -> Any:
        return self.loop.target.spec

    def run_exclusive(self, work: Any) -> Any:
        self.exclusive += 1
        return work()


def test_an_engine_measures_once_and_the_next_one_reads(loop: Loop, tmp_path: Path):
    store = Store(tmp_path / "c.json")
    first = Calibrator(Host(loop, drafter("one"), drafter("two", 3)), store)
    assert first.load() == [LOOKUP, "one", "two"]
    assert not first.view("one").measured
    first.measure(budget_s=0.5)
    assert first.host.exclusive == 1, "one session of measuring serves all drafters"
    assert first.missing == []
    assert first.costs("one") is not None
    assert first.view("lookup+one").drafter == "one"
    assert first.view("none").drafter == LOOKUP
    assert first.book.prior("one").first < 0.7

    second = Calibrator(Host(loop, drafter("one"), drafter("two", 3)), store)
    assert second.load() == []
    mine, theirs = first.costs("one"), second.costs("one")
    assert mine is not None
    assert theirs is not None
    assert theirs.round_ms(3) == pytest.approx(mine.round_ms(3), rel=1e-3)
    second.measure()
    assert second.host.exclusive == 0
    second.measure(force=True, budget_s=0.2)
    assert second.host.exclusive == 1

    wider = Calibrator(Host(loop, drafter("one")), store)
    wider.host.options = SimpleNamespace(max_batch=2)  # pyright: ignore[reportAttributeAccessIssue]
    assert wider.load() == [LOOKUP, "one"], "the known curves lack batches"
    wider.measure(budget_s=0.2)
    assert Calibrator(wider.host, store).load() == []


def test_fewer_threads_use_what_more_of_them_measured_until_the_machine_is_quiet(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A start while others compute leaves fewer cores and so fewer threads: that is no reason to know nothing, nor to
    measure while they do."""
    store = Store(tmp_path / "c.json")
    load = 0.0
    monkeypatch.setattr(session, "load_per_core", lambda: load)
    monkeypatch.setattr(session.backend, "BLAS", session.backend.Blas("openblas"))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    first = Calibrator(Host(loop, drafter("one")), store)
    first.measure(budget_s=0.2)
    assert not first.view("one").stale

    load = 3.0
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    busy = Calibrator(Host(loop, drafter("one")), store)
    assert busy.load() == [], "nothing is measured while others compute"
    assert busy.costs("one") is not None, "and what is known decides"
    assert busy.view("one").stale and "4 BLAS threads, and now there is 1" in busy.view("one").reason
    assert "now there is 1" in busy.view("none").reason

    load = 0.2
    quiet = Calibrator(Host(loop, drafter("one")), store)
    assert quiet.load() == [LOOKUP, "one"]
    quiet.measure(budget_s=0.2)
    assert quiet.host.exclusive == 1
    assert not quiet.view("one").stale
    assert quiet.load() == [], "each number of threads has its own entry"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    again = Calibrator(Host(loop, drafter("one")), store)
    assert again.load() == [] and not again.view("one").stale, "the old entry is still there"
    assert again.calibrations["one"].measured_at == first.calibrations["one"].measured_at


def test_what_was_measured_on_a_busy_machine_is_measured_again_on_a_quiet_one(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = Store(tmp_path / "c.json")
    load = 3.0
    monkeypatch.setattr(session, "load_per_core", lambda: load)
    Calibrator(Host(loop, drafter("one")), store).measure(budget_s=0.2)
    again = Calibrator(Host(loop, drafter("one")), store)
    assert again.load() == [], "better than nothing, and no better can be had now"
    assert "busy" in again.view("one").reason

    load = 0.2
    quiet = Calibrator(Host(loop, drafter("one")), store)
    assert quiet.load() == [LOOKUP, "one"]
    assert quiet.costs("one") is not None, "in use until then"
    quiet.measure(budget_s=0.2)
    assert quiet.host.exclusive == 1
    assert "busy" not in quiet.view("one").reason
    assert Calibrator(Host(loop, drafter("one")), store).load() == []


def test_another_drafter_of_the_same_name_is_another_measurement(loop: Loop, tmp_path: Path):
    store = Store(tmp_path / "c.json")
    Calibrator(Host(loop, drafter("one")), store).measure(budget_s=0.2)
    changed = Calibrator(Host(loop, drafter("one", longest=6)), store)
    assert changed.load() == ["one"]
    assert changed.view("one").stale


def test_a_failure_costs_no_load(tmp_path: Path):
    broken = SimpleNamespace(target=SimpleNamespace(spec=tiny_llama(layers=1).spec))
    host = Host(Loop(tiny_llama(layers=1, vocab=ByteTokenizer.vocab_size)))
    host.loop = broken  # type: ignore[assignment]
    calibrator = Calibrator(host, Store(tmp_path / "c.json"))
    assert calibrator.measure() == {}
    assert calibrator.costs(LOOKUP) is None


def test_two_engines_at_once(loop: Loop, tmp_path: Path):
    stores = [Store(tmp_path / "c.json") for _ in range(2)]
    both = [
        Calibrator(Host(Loop(tiny_llama(layers=2, vocab=ByteTokenizer.vocab_size)), drafter("one")), store)
        for store in stores
    ]
    errors: list[BaseException] = []

    def work(calibrator: Calibrator) -> None:
        try:
            calibrator.measure(budget_s=0.2)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(c,)) for c in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert both[0].missing == both[1].missing == []
    assert len({c.calibrations["one"].measured_at for c in both}) == 1


def test_a_confidence_cut_does_not_shorten_what_is_timed(loop: Loop):
    """A draft that its head shortens would be priced at a width it did not have; the cut comes back afterwards."""

    class Doubting(ScriptedDrafter):
        costs: Any = staticmethod(lambda k: float(k))
        threshold = 0.5

        def propose(self, context: Any, pending: int, k: int, sampler: Any) -> Any:
            asked.append(self.costs is None and self.threshold == 0.0)
            return super().propose(context, pending, k if asked[-1] else 1, sampler)

    asked: list[bool] = []
    doubting = Doubting(lambda ids, k: [7] * k, name="doubting", max_draft=4, taps=(0, 1))
    measure(loop, ByteTokenizer(), [doubting], PROMPT, budget_s=0.2)
    assert asked
    assert all(asked)
    assert (doubting.costs, doubting.threshold) == (Doubting.costs, 0.5)
    assert doubting.costs(3) == 3.0


def test_noise_alone_corrects_nothing():
    """Live rounds that scatter around the curves leave them as they are; rounds that lie off them do not."""
    dice = random.Random(7)
    for factor, low, high in ((1.0, 0.9, 1.1), (1.6, 1.25, 1.7)):
        timings = Timings()
        for at in range(200):
            cap = 0 if at % 4 == 0 else 2
            timings.observe(cap, 100.0 * math.exp(dice.gauss(0.0, 0.2)) * (factor if cap else 1.0), 100.0)
        assert low < timings.correction(2) < high


def test_more_rows_are_never_believed_to_be_cheaper_than_one():
    """On a machine that others use a wide round may read faster than a narrow one; a drafter that is never right must
    be parked all the same."""
    costs = Costs(Curve.of({1: 100, 2: 104, 5: 110}), Curve.of({1: 2}))
    controller = Controller(costs, Acceptance(), Timings())
    for _ in range(120):
        cap = controller.choose(4)
        controller.observe(cap, 0, True, 60.0 if cap else 140.0)
    assert controller.parked
