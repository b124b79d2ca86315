"""Facts about this machine and this installation, each with a verdict and, where something is wrong, the way out.

Finds out by doing: it imports what the engine needs and multiplies two matrices. Loads no model and touches no network.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from engine import backend, hub, paths
from engine.chat.terminal_safe import one_line
from engine.config import Config
from engine.errors import DsparkError, human_bytes
from engine.hub.catalog import catalog

_NEEDED = (
    "mlx",
    "mlx-lm",
    "transformers",
    "tokenizers",
    "huggingface_hub",
    "numpy",
    "textual",
    "starlette",
    "llguidance",
)
_IMPORTED = ("mlx.core", "mlx.nn", "mlx_lm.models.llama", "transformers", "tokenizers")
_LOW_DISK = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the report."""

    group: str
    name: str
    value: str
    ok: bool = True
    advice: str = ""
    """What to do; empty when all is well."""


def examine(folders: Sequence[Path | str] = (), *, models: bool = False) -> list[Fact]:
    """All facts; a part that cannot be examined becomes a fact that says so, never an exception.

    models: also read the headers of every installed model.
    """
    facts: list[Fact] = []
    parts: list[tuple[str, Callable[[], list[Fact]]]] = [
        ("system", _system),
        ("packages", _packages),
        ("engine", _engine),
        ("disk", _disk),
        ("prefix cache", _prefix_cache),
        ("roofline", _roofline),
        ("models", lambda: _models(folders, models)),
        ("terminal", _terminal),
    ]
    for group, part in parts:
        try:
            facts += part()
        except Exception as error:  # a broken machine is what this is for  # noqa: BLE001
            facts.append(Fact(group, "examination", f"{type(error).__name__}: {error}", False, "Report this line."))
    return facts


def report(facts: Sequence[Fact], config: Config, version: str) -> str:
    """The facts and the settings as text, for a terminal and for a screen."""
    lines = [f"dspark-chat {version}"]
    group = ""
    for fact in facts:
        if fact.group != group:
            group = fact.group
            lines += ["", group]
        lines.append(f" {' ' if fact.ok else '!'} {one_line(fact.name):<22} {one_line(fact.value)}")
        if fact.advice:
            lines.append(f"   {'':<22} → {one_line(fact.advice)}")
    lines += ["", "settings"]
    values = config.as_dict()
    lines += [f"   {n:<22} {one_line(str(values[n]))}  ({one_line(source)})" for n, source in config.sources.items()]
    lines += [f" ! {one_line(note)}" for note in config.notes]
    if not config.sources and not config.notes:
        lines.append("   all as built in")
    return "\n".join(lines)


def as_dicts(facts: Sequence[Fact]) -> list[dict[str, Any]]:
    return [asdict(fact) for fact in facts]


def _system() -> list[Fact]:
    return [
        Fact("system", "system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        Fact("system", "python", f"{platform.python_version()} at {sys.executable}"),
    ]


def _packages() -> list[Fact]:
    facts: list[Fact] = []
    for name in _NEEDED:
        try:
            facts.append(Fact("packages", name, version(name)))
        except PackageNotFoundError:
            facts.append(Fact("packages", name, "missing", False, f"Install it: pip install {name}"))
    for name in _IMPORTED:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a half-working package raises  # noqa: BLE001
            package = name.split(".", 1)[0].replace("_", "-")
            reason = f"import failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            facts.append(Fact("packages", name, reason, False, f"Reinstall {package}, or try another version of it."))
    return facts


def _engine() -> list[Fact]:
    report = backend.report()
    gpu = not backend.is_cpu()
    tuned = report.blas in ("openblas", "accelerate") or gpu
    facts = [
        Fact("engine", "device", report.device),
        Fact("engine", "numbers", report.compute),
        Fact("engine", "cores", f"{report.cores}, BLAS threads {report.threads}"),
        Fact("engine", "memory", human_bytes(report.memory_bytes)),
        Fact("engine", "BLAS", report.blas, tuned, "" if tuned else f"Slow: {report.blas_reason}."),
        Fact("engine", "matrix product", f"{gflops():.1f} GFLOP/s in float32, 16 rows (measured now)"),
    ]
    if sys.platform.startswith("linux") and not gpu and shutil.which("g++") is None:
        facts.append(Fact("engine", "g++", "not found: MLX runs without fused kernels, which changes speed, not text"))
    return facts


def gflops(rows: int = 16, inputs: int = 1536, outputs: int = 576) -> float:
    """Speed of one small float32 product, the shape of a verify: best of a few."""
    import mlx.core as mx

    left, right = mx.random.normal((rows, inputs)), mx.random.normal((inputs, outputs))
    mx.eval(left, right)
    best = float("inf")
    for _ in range(6):
        begun = time.perf_counter()
        mx.eval(left @ right)
        best = min(best, time.perf_counter() - begun)
    return 2 * rows * inputs * outputs / best / 1e9


def _disk() -> list[Fact]:
    facts: list[Fact] = []
    for name, folder in (("model cache", paths.models()), ("hub cache", paths.hub_cache())):
        there = folder
        while not there.exists() and there != there.parent:
            there = there.parent
        free = shutil.disk_usage(there).free
        facts.append(Fact("disk", name, str(folder)))
        if not os.access(there, os.W_OK):
            facts.append(
                Fact("disk", f"{name} writable", "no", False, f"Make {there} writable, or set {paths.ENV_HOME}.")
            )
        elif free < _LOW_DISK:
            facts.append(Fact("disk", f"{name} space", f"{human_bytes(free)} free", False, "Free some space."))
    return facts


def _prefix_cache() -> list[Fact]:
    """Whether what was stored ever failed its own checks, in any run on this machine."""
    from engine.prefix_cache.stats import fault_log, recorded_faults

    faults = recorded_faults()
    last = f"; the last one: {faults[-1]}" if faults else ""
    advice = (
        f"Report this line; none was served. dspark-chat cache clear empties the files, and the log is {fault_log()}."
    )
    return [Fact("prefix cache", "wrong states dropped", f"{len(faults)}{last}", not faults, advice if faults else "")]


def _roofline() -> list[Fact]:
    """How close each model that was measured on this machine comes to what its memory allows."""
    from engine.calibration.calibrator import device, load_per_core
    from engine.calibration.record import BUSY
    from engine.calibration.roofline import bandwidth, over
    from engine.calibration.store import Store
    from engine.calibration.summary import view

    here = device()
    known = {names: c for names, c in Store().newest().items() if c.identity.device == here and c.step_bytes}
    if not known:
        return [Fact("roofline", "calibration", "none on this machine yet; dspark-chat calibrate measures")]
    gbs = bandwidth()
    busy = load_per_core() > BUSY
    told = "measured now, while others computed: the numbers below mean little" if busy else "measured now"
    facts = [Fact("roofline", "memory bandwidth", f"{gbs:.1f} GB/s ({told})")]
    for target in sorted({names[0] for names in known}):
        views = {names[1]: view(c) for names, c in known.items() if names[0] == target}
        step = max(c.step_bytes for names, c in known.items() if names[0] == target)
        facts.append(Fact("roofline", target, str(over(gbs, step, views))))
    return facts


def _models(folders: Sequence[Path | str], check: bool) -> list[Fact]:
    facts: list[Fact] = []
    for found in hub.installed(folders):
        value = f"{human_bytes(found.size)} in {found.place}"
        error = ""
        if found.missing:
            error = f"incomplete: {', '.join(found.missing[:3])} missing"
        elif check and found.path is not None and found.path.is_dir():
            try:
                hub.check_folder(found.path)
            except DsparkError as reason:
                error = str(reason)
        advice = f"dspark-chat models fetch {found.name}" if found.missing and found.repo else ""
        facts.append(Fact("models", found.name, f"{value}; {error}" if error else value, not error, advice))
    for file, reason in catalog().broken:
        facts.append(Fact("models", "card", f"{file}: {reason}", False, "Correct or remove that file."))
    return facts or [Fact("models", "installed", "none yet; the embedded one is fetched at the first start")]


def _terminal() -> list[Fact]:
    size = shutil.get_terminal_size()
    values = {name: os.environ.get(name, "") for name in ("TERM", "COLORTERM", "NO_COLOR", "TMUX")}
    said = " ".join(f"{name}={value}" for name, value in values.items() if value) or "nothing set"
    return [
        Fact("terminal", "size", f"{size.columns}×{size.lines}"),
        Fact("terminal", "says", said),
        Fact("terminal", "encoding", sys.stdout.encoding or "unknown"),
    ]
