"""Downloads one repository; runs as a process of its own, so that it can be ended at any moment and holds no lock.

    python -P download_process.py <repository> [--plan] [file...]

Writes JSON lines: sizes, then bytes, then done or error. Waits for a line on stdin after `sizes`, and ends when stdin
does, so that no download outlives the program that asked for it. With --plan it says the sizes and the model's config,
and fetches nothing else. Imports nothing of the engine.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
import threading
import time
from io import StringIO
from pathlib import Path
from typing import Any

PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model", "*.tiktoken", "mask_embedding.pt"]
"""Weights, configs and tokenizers, and the one row that some drafters keep apart. Never code, never the same weights in
another format."""
_LOCK = threading.Lock()


def say(event: str, **values: object) -> None:
    with _LOCK:
        sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
        sys.stdout.flush()


def _bar_class() -> Any:
    from tqdm import tqdm

    class Bar(tqdm):  # pyright: ignore[reportMissingTypeArgument, reportUntypedBaseClass]
        """Reports the bytes that are on disk; draws nothing."""

        told = 0.0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.bytes_on_disk = kwargs.pop("name", "") == "huggingface_hub.snapshot_download"
            kwargs.update(disable=False, file=StringIO())
            super().__init__(*args, **kwargs)

        def update(self, n: float | None = 1) -> bool | None:
            drawn = super().update(n)
            now = time.monotonic()
            if self.bytes_on_disk and now - self.told > 0.1:
                self.told = now
                say("bytes", done=int(self.n))
            return drawn

    return Bar


def kind_of(error: BaseException) -> str:
    """The class of trouble, by class names: the library's HTTP client changes between versions."""
    names = {cls.__name__ for e in (error, error.__cause__, error.__context__) if e for cls in type(e).__mro__}
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "space"
    for kind, classes in (
        ("gated", {"GatedRepoError"}),
        ("unknown", {"RepositoryNotFoundError", "RevisionNotFoundError", "HFValidationError"}),
        ("offline", {"OfflineModeIsEnabled", "ConnectError", "ConnectTimeout", "ConnectionError", "DryRunError",
                     "LocalEntryNotFoundError", "IncompleteSnapshotError", "TimeoutException", "ReadError"}),
    ):  # fmt: skip
        if names & classes:
            return kind
    return "other"


def config_of(repo: str) -> str:
    """config.json as text, without leaving a trace in the cache: a model that has only that looks interrupted."""
    from huggingface_hub import hf_hub_download

    with tempfile.TemporaryDirectory() as folder:
        return Path(hf_hub_download(repo, "config.json", local_dir=folder)).read_text(encoding="utf-8")


def main(argv: list[str]) -> int:
    repo, only_plan = argv[0], "--plan" in argv
    patterns = [name for name in argv[1:] if name != "--plan"] or PATTERNS
    go = threading.Event()

    def watch() -> None:
        for _line in sys.stdin:
            go.set()
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()
    try:
        from huggingface_hub import snapshot_download

        plan = snapshot_download(repo, allow_patterns=patterns, dry_run=True)
        files = {f.filename: f.file_size or 0 for f in plan}
        wanted = {f.filename: f.file_size or 0 for f in plan if f.will_download}
        config = config_of(repo) if only_plan and "config.json" in files else ""
        say("sizes", bytes=sum(wanted.values()), total=sum(files.values()), wanted=wanted, files=files, config=config)
        if only_plan:
            return 0
        go.wait()
        # Few at a time: an interrupted download loses its half-done files.
        path = snapshot_download(repo, allow_patterns=patterns, max_workers=2, tqdm_class=_bar_class())
        say("done", path=path)
    except Exception as error:  # whatever it was, it is told and the process ends  # noqa: BLE001
        say("error", kind=kind_of(error), text=" ".join(str(error).split())[:500] or type(error).__name__)
        return 1
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # the watcher sits in a read on stdin, which a normal exit would wait for
