"""The machine underneath MLX: the BLAS, the number format, the thread count, and how to say so.

Must be imported before `mlx.core` in every process: on Linux it loads a tuned BLAS with global symbols, so that MLX's
matrix products bind to it instead of to the reference BLAS that its wheel carries. Knows no model.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import importlib.util
import os
import platform
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.errors import human_bytes

ENV_BLAS = "DSPARK_BLAS"
"""`tuned` (default): preload OpenBLAS on Linux. `stock`: leave MLX's own. A path: load that library."""
ENV_THREADS = "DSPARK_THREADS"


@dataclass(frozen=True, slots=True)
class Blas:
    """What serves float32 matrix products on the CPU backend."""

    kind: str
    """`openblas`, `stock`, `accelerate` (macOS) or `late` (MLX was imported first, so nothing could be done)."""
    path: str = ""
    reason: str = ""


def _cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def _free_cores() -> int:
    """Cores that others leave idle, at least one. OpenBLAS threads wait for each other by spinning: with more of them
    than free cores, each waits for one that is not running, and a product takes ten times as long as on one thread."""
    try:
        busy = int(os.getloadavg()[0])
    except OSError:
        busy = 0
    return max(1, _cores() - busy)


def _candidates(choice: str) -> list[str]:
    if choice not in ("", "tuned"):
        return [choice]
    found: list[str] = []
    spec = importlib.util.find_spec("ngsolve_openblas")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found += sorted(str(p) for p in Path(folder).glob("libopenblas*.so*"))
    system = ctypes.util.find_library("openblas")
    return found + ([system] if system else [])


def _open(path: str) -> ctypes.CDLL:
    """Load a BLAS with global symbols.

    The OpenBLAS wheel wants a libgfortran.so.5, which a bare machine lacks and MLX's own wheel carries under a mangled
    name. Links under the plain names beside the library (its rpath is its own folder) satisfy it; they are needed only
    while the loader looks, so a private temporary folder holds them.
    """
    try:
        return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        spec = importlib.util.find_spec("mlx")
        homes = [Path(p).parent / "mlx_cpu.libs" for p in (spec.submodule_search_locations or [])] if spec else []
        runtime = [
            p for home in homes for p in home.glob("lib*.so*") if p.name.startswith(("libgfortran", "libquadmath"))
        ]
        if not runtime:
            raise
    with tempfile.TemporaryDirectory(prefix="dspark-blas-") as folder:
        for library in runtime:
            os.symlink(library, Path(folder) / library.name)
            if library.name.startswith("libgfortran"):
                os.symlink(library, Path(folder) / "libgfortran.so.5")
        link = Path(folder) / Path(path).name
        os.symlink(path, link)
        return ctypes.CDLL(str(link), mode=ctypes.RTLD_GLOBAL)


def _preload() -> Blas:
    if sys.platform == "darwin":
        return Blas("accelerate")
    choice = os.environ.get(ENV_BLAS, "tuned")
    if choice == "stock":
        return Blas("stock", reason=f"{ENV_BLAS}=stock")
    if not sys.platform.startswith("linux"):
        return Blas("stock", reason=f"no preload on {sys.platform}")
    if "mlx.core" in sys.modules:
        return Blas("late", reason="mlx was imported before engine.backend")
    threads = os.environ.get(ENV_THREADS) or str(_free_cores())
    os.environ.setdefault("OPENBLAS_NUM_THREADS", threads)
    errors: list[str] = []
    for path in _candidates(choice):
        try:
            library = _open(path)
        except OSError as error:
            errors.append(str(error))
            continue
        if hasattr(library, "cblas_sgemm"):
            return Blas("openblas", path)
        errors.append(f"{path} has no cblas_sgemm")
    return Blas("stock", reason="; ".join(errors) or "no OpenBLAS found: pip install ngsolve-openblas, or libopenblas0")


# transformers tells every user of its tokenizers that it found no PyTorch, which we do not want.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

BLAS = _preload()
"""Decided once, at the first import of this module."""


def is_cpu() -> bool:
    """Whether MLX computes on the CPU in this process."""
    import mlx.core as mx

    return mx.default_device().type == mx.DeviceType.cpu  # pyright: ignore[reportUnknownMemberType]


def keep_memory() -> bool:
    """Let the C library keep what is freed, instead of giving it back and getting it zeroed again: a training step on
    the CPU allocates the same arrays over and over. Returns whether there was anything to be told."""
    if not sys.platform.startswith("linux"):
        return False
    tell = getattr(ctypes.CDLL(None), "mallopt", None)
    trim_threshold, mmap_threshold = -1, -3
    return bool(tell and tell(trim_threshold, 1 << 30) and tell(mmap_threshold, 1 << 30))


def float32_only() -> bool:
    """On the CPU backend 16-bit activations run 10 to 100 times slower than float32, so models compute in float32."""
    return is_cpu()


def compute_thread() -> None:
    """Should be called at the start of every thread that decodes, before it computes anything.

    MLX's CPU backend has a thread for the operations of each thread that computes, and wakes it for each of the
    thousand of a round. As an ordinary thread it would then take the core from the one that is still handing them
    over, a thousand times a round; one that is known to compute waits until that one does. Linux only.
    """
    if sys.platform != "linux":
        return
    mine = os.sched_getscheduler(0)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        import mlx.core as mx

        if is_cpu():
            mx.eval(mx.zeros((1,)) + 1)  # starts that thread, which inherits what this one is
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, mine, os.sched_param(0))


def release_thread() -> None:
    """Must be called at the end of every thread that computed: MLX aborts the process at exit otherwise."""
    module = sys.modules.get("mlx.core")
    if module is not None:
        module.synchronize()
        module.clear_streams()


@dataclass(frozen=True, slots=True)
class Report:
    """Facts that `doctor` prints."""

    system: str
    python: str
    mlx: str
    device: str
    metal: bool
    compute: str
    blas: str
    blas_reason: str
    cores: int
    threads: str
    memory_bytes: int

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


_DEVICE_MEMORY = ("max_recommended_working_set_size", "total_memory", "memory_size")
"""What a GPU calls the bytes that may be used; the first that it knows counts."""
PIN_MARGIN = 2 * 2**30
"""Pinned beside the weights: keys and values, scratch."""


def memory_bytes() -> int:
    """Bytes that weights and state may use: the working set on Metal, a graphics card's own, else the machine's."""
    import mlx.core as mx

    if not is_cpu():
        info = mx.device_info()
        return int(next((info[name] for name in _DEVICE_MEMORY if info.get(name)), 0))
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


def pin(weights: int) -> str:
    """Ask macOS not to page out a model of so many bytes between answers. Returns one sentence about what was done.

    Only on request: pinned pages cannot be reclaimed, and a machine that runs short of others may stall.
    """
    import mlx.core as mx

    if not mx.metal.is_available():
        return "Weights are pinned on Apple Silicon only; nothing was done."
    most = memory_bytes()
    limit = min(weights + PIN_MARGIN, most)
    mx.set_wired_limit(limit)
    return f"Pinned up to {human_bytes(limit)} of {human_bytes(most)}."


def raise_memory() -> str:
    """How a person may let the GPU use more of the machine's memory; empty where there is no such way."""
    import mlx.core as mx

    return "`sudo sysctl iogpu.wired_limit_mb=N` lets macOS give it more until the next start" * mx.metal.is_available()


def report() -> Report:
    """Describe the machine; imports MLX."""
    from importlib.metadata import version

    import mlx.core as mx

    return Report(
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        mlx=version("mlx"),
        device=str(mx.default_device()),
        metal=mx.metal.is_available(),
        compute="float32" if float32_only() else "as stored",
        blas=BLAS.kind,
        blas_reason=BLAS.reason or BLAS.path,
        cores=_cores(),
        threads=os.environ.get("OPENBLAS_NUM_THREADS", "default"),
        memory_bytes=memory_bytes(),
    )
