"""Gives a loaded engine its curves: from the store when this machine was measured, else by measuring it now.

Never fails a load: what cannot be measured is left out with its reason, and policies fall back.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from engine import backend
from engine.calibration.measure import Measured, Progress, measure
from engine.calibration.record import BUSY, Calibration, Identity
from engine.calibration.roofline import step_bytes
from engine.calibration.store import Store
from engine.calibration.summary import CalibrationView, view
from engine.chat.tokenizer import Tokenizer
from engine.decoding.draft_length.acceptance import Timings
from engine.decoding.draft_length.cost_model import Costs
from engine.decoding.draft_length.learned import Book
from engine.decoding.loop import Loop
from engine.drafters.base import Drafter
from engine.drafters.chain import Chain
from engine.errors import Cancelled
from engine.targets.base import TargetSpec

log = logging.getLogger("dspark.calibrate")

QUESTION = "Explain in a few sentences how a bicycle stays upright while it is moving, and why it falls when it stops."
"""The built-in text on which drafters are first watched. Ordinary chat, neither friendly nor hostile."""
LOOKUP = "lookup"
QUIET = 0.5
"""Runnable processes a core, up to which a start measures again what it could borrow."""


class Host(Protocol):
    """The part of an engine that is measured."""

    loop: Loop
    tokenizer: Tokenizer

    @property
    def spec(self) -> TargetSpec: ...
    @property
    def chains(self) -> Any: ...
    def run_exclusive(self, work: Callable[[], Any]) -> Any: ...


class Calibrator:
    """Curves and beliefs of one engine, by drafter name ("lookup" where nothing learned drafts)."""

    def __init__(self, host: Host, store: Store | None = None) -> None:
        self.host = host
        self.store = store or Store()
        self.book = Book()
        self.calibrations: dict[str, Calibration] = {}
        self._borrowed: dict[str, int] = {}
        """Threads of this process, by the names whose curves are of another number of them."""
        self._outdated: dict[str, Calibration] = {}

    # What policies and panels ask -------------------------------------------------------------------------------------

    def costs(self, drafter: str) -> Costs | None:
        """Measured curves, or None."""
        found = self.calibrations.get(drafter)
        return found.costs if found else None

    def view(self, drafter: str, depth: int = 0, rows: int = 1) -> CalibrationView:
        """For the panel; a chain is shown by its learned part, plain decoding by lookup's curves."""
        name = self.name_of(drafter)
        found = self.calibrations.get(name)
        if found is None:
            return view(self._outdated.get(name), outdated=True)
        return view(found, self.timings(name), depth=depth, rows=rows, threads=self._borrowed.get(name))

    def timings(self, drafter: str) -> Timings:
        return self.book.timings(drafter)

    def name_of(self, chain: str) -> str:
        """The name under which a chain's curves are kept."""
        found: Chain | None = self.host.chains.get(chain)
        learned = found.learned if found else None
        return learned.name if learned else LOOKUP

    @property
    def missing(self) -> list[str]:
        """Names without curves."""
        return [name for name in self._names() if name not in self.calibrations]

    # Work -------------------------------------------------------------------------------------------------------------

    def load(self) -> list[str]:
        """Take up what the store has; returns the names that should be measured now. Quick; no model runs.

        Fewer idle cores at the start are fewer threads. What was measured with another number of them, or while others
        computed, serves until the machine is quiet enough to measure again, and says what it is.
        """
        for name, drafter in self._names().items():
            identity = self._identity(drafter)
            found, near = self.store.get(identity.key), self.store.near(identity)
            if found is not None and self._covers(found):
                self._take(name, found)
            elif near is not None and self._covers(near):
                self._take(name, near)
                self._borrowed[name] = identity.threads
            else:
                stale = self.store.other(self.host.spec.name, name)
                if stale is not None:
                    self._outdated[name] = stale
        return [name for name in self._names() if name not in self.calibrations or name in self._doubtful]

    @property
    def _doubtful(self) -> set[str]:
        """Names whose curves this moment could better: measured otherwise than it would be now, on a quiet machine."""
        if load_per_core() > QUIET:
            return set()
        return {*self._borrowed, *(name for name, found in self.calibrations.items() if found.busy > BUSY)}

    def measure(
        self,
        *,
        force: bool = False,
        budget_s: float = 10.0,
        progress: Progress | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> dict[str, Calibration]:
        """Measure what is missing, borrowed or doubtful, or all again with `force`. Blocks decoding while it runs.

        Raises:
            Cancelled: `stop` said so; what was known stays.
        """
        if not force:
            self.load()
        again = {*self._borrowed, *self._doubtful}
        names = {n: d for n, d in self._names().items() if force or n in again or n not in self.calibrations}
        if not names:
            return self.calibrations
        learned = [d for d in names.values() if d is not None]
        work = partial(
            measure,
            self.host.loop,
            self.host.tokenizer,
            learned,
            self._prompt(),
            budget_s=budget_s,
            most_rows=self._most_rows,
            progress=progress,
            stop=stop,
        )
        # One measurement serves all names, and none is made where the store has all of them.
        once, busy = cache(lambda: self.host.run_exclusive(lambda: _tidied(work))), load_per_core()
        for name, drafter in names.items():
            try:
                self._take(name, self._renewed(name, drafter, once, busy, force=force, again=name in again))
            except Cancelled:
                raise
            except Exception:
                log.exception("calibration of %s failed", name)
        return self.calibrations

    def _renewed(
        self,
        name: str,
        drafter: Drafter[Any] | None,
        once: Callable[[], Measured],
        busy: float,
        *,
        force: bool,
        again: bool,
    ) -> Calibration:
        """What the store has of a drafter where that is enough, otherwise what is measured now, at the load `busy`."""
        identity = self._identity(drafter)
        known = self.store.get(identity.key)
        doubtful = known is not None and again and known.busy > BUSY
        if known is not None and (force or doubtful or not self._covers(known)):
            self.store.forget(identity.key)
        return self.store.get_or(identity.key, lambda: self._record(name, drafter, identity, once(), busy))

    def _record(
        self, name: str, drafter: Drafter[Any] | None, identity: Identity, measured: Measured, busy: float
    ) -> Calibration:
        return Calibration(
            identity=identity,
            target_name=self.host.spec.name,
            drafter_name=name,
            costs=measured.costs(name),
            longest=drafter.max_draft if drafter else measured.verify.last - 1,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            prior=measured.priors.get(name),
            spread=measured.spread,
            took_s=measured.took_s,
            busy=busy,
            refused=measured.refused,
            step_bytes=step_bytes(self.host.spec),
        )

    def _take(self, name: str, calibration: Calibration) -> None:
        self.calibrations[name] = calibration
        self._outdated.pop(name, None)
        self._borrowed.pop(name, None)
        if calibration.prior is not None:
            self.book.set_prior(name, calibration.prior)
        drafter = self._names().get(name)
        if drafter is not None and hasattr(drafter, "costs"):
            # A confidence head may shorten each draft by its own estimate, where shorter is cheaper.
            costs = calibration.costs
            worth = not costs.flat(drafter.max_draft)
            drafter.costs = (lambda k: costs.round_ms(k)) if worth else None  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def _most_rows(self) -> int:
        return int(getattr(getattr(self.host, "options", None), "max_batch", 1))

    def _covers(self, calibration: Calibration) -> bool:
        """Whether its batches are as large as this engine's, or could not be measured."""
        most = self._most_rows
        grid = calibration.costs.batch
        return most <= max(grid, default=1) or any(name.startswith("batch") for name in calibration.refused)

    def _names(self) -> dict[str, Drafter[Any] | None]:
        names: dict[str, Drafter[Any] | None] = {LOOKUP: None}
        for chain in self.host.chains.values():
            if chain.learned is not None:
                names[chain.learned.name] = chain.learned
        return names

    def _prompt(self) -> list[int]:
        format_ = getattr(self.host, "format", None)
        if format_ is not None:
            try:
                return list(format_.render([{"role": "user", "content": QUESTION}]))
            except Exception:
                log.debug("no chat template; the bare question is used", exc_info=True)
        return self.host.tokenizer.encode(QUESTION)

    def _identity(self, drafter: Drafter[Any] | None) -> Identity:
        return Identity(
            target=self.host.spec.fingerprint or self.host.spec.path,
            drafter="" if drafter is None else _fingerprint(drafter),
            device=device(),
            libraries=libraries(),
            kernels=str(getattr(getattr(self.host.loop.target, "ops", None), "tag", "")),
        )


def _tidied(work: Callable[[], Measured]) -> Measured:
    """Measuring leaves cycles around states of many rows: some hundred MB, until somebody collects them."""
    import mlx.core as mx

    done = work()
    gc.collect()
    mx.clear_cache()
    return done


def _fingerprint(drafter: Drafter[Any]) -> str:
    """Of the drafter's normalised description; its acceptance is learned again anyway."""
    told = getattr(drafter, "fingerprint", "")
    text = told or f"{drafter.name}|{drafter.taps}|{drafter.max_draft}|{getattr(drafter, 'config', '')!r}"
    return hashlib.sha256(str(text).encode()).hexdigest()[:32]


def device() -> str:
    """Chip and cores, as far as the system says."""
    import mlx.core as mx

    if not backend.is_cpu():
        try:
            info = mx.device_info()
            return f"{info.get('device_name', info.get('architecture', 'gpu'))}"
        except (RuntimeError, AttributeError):
            return str(mx.default_device())
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name} x{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}"


def libraries() -> str:
    """Versions of all that computes, the BLAS and its threads included."""
    parts: list[str] = []
    for package in ("mlx", "mlx-lm"):
        try:
            parts.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            parts.append(f"{package} ?")
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "")
    return ", ".join([*parts, f"{backend.BLAS.kind} {threads}".strip(), platform.system()])


def load_per_core() -> float:
    """Runnable processes a core over the last minute; 0 where the system does not say."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (OSError, AttributeError):
        return 0.0
