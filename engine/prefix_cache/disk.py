"""The disk tier: prefixes that outlive the process.

A file (segment) holds what one node adds to its parent: tokens, blocks, checkpoint, contexts. Files are written once,
by a thread of their own, parents before children, and never changed; they are named by content, so that several
processes share a folder. What is not whole, or belongs to another model, is never used.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import queue
import threading
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from engine import paths
from engine.prefix_cache.blocks import Block, Checkpoint, Layout
from engine.prefix_cache.disk_file import FORMAT, SUFFIX, Segment, digest, scan, sweep
from engine.prefix_cache.invariants import cover
from engine.prefix_cache.radix_tree import Node, Tokens, Tree, divide
from engine.prefix_cache.serialization import Encoded, Opened, encode, pack

MADE_WITH = " ".join(f"{name} {version(name)}" for name in ("mlx", "mlx-lm"))
"""Another version may compute, or lay out, a state differently: its files are not read."""
DEFAULT_LIMIT = 8 << 30
DEFAULT_LEAST = 256
"""Shorter prefixes are read again faster than they are worth a file."""
MAX_PENDING = 1 << 30
"""Bytes that may wait in memory to be written; what comes on top is not written."""
HEADER = 1 << 14
"""More than a file's header takes, beside its arrays."""
MAX_ERRORS = 5
"""After so many failed writes the tier stops trying for this process."""


@dataclass(frozen=True, slots=True)
class DiskStats:
    entries: int
    nbytes: int
    errors: int = 0
    error: str = ""
    """The last one, as a sentence."""


@dataclass(eq=False, slots=True)
class _Job:
    segment: Segment
    content: Encoded
    era: int


class DiskTier:
    """A folder with a size limit. `attach` and `keep` are called on the model thread."""

    def __init__(
        self, folder: Path, limit_bytes: int = DEFAULT_LIMIT, *, least: int = DEFAULT_LEAST, label: str = ""
    ) -> None:
        self.folder = folder
        self.limit = limit_bytes
        self.least = least
        self.max_pending = MAX_PENDING
        self.label = label
        """Written into files for people: the model's name."""
        self._lock = threading.Lock()
        self._segments: dict[str, Segment] | None = None
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending = 0
        self._era = 0
        """Grows when everything is deleted; what was handed over before is then not written."""
        self._errors = 0
        self._error = ""

    # Reading ---------------------------------------------------------------------------------------------------------

    def index(self) -> dict[str, Segment]:
        """All files by id; the first call looks into the folder and sweeps what a killed process left."""
        if self._segments is None:
            sweep(self.folder)
            self._segments = {s.id: s for s in scan(self.folder)}
        return self._segments

    def attach(self, key: str, tree: Tree) -> tuple[Layout | None, float]:
        """Put the files of one state key into its tree, as nodes whose blocks are read when they are needed. Returns
        their layout and the prefill rate that was measured when the newest was written, in ms per token or 0."""
        layout: Layout | None = None
        rates: dict[float, float] = {}
        known: dict[str, Tokens] = {}
        with self._lock:
            mine = [s for s in self.index().values() if s.folder == digest(key) and s.alive]
        # A parent begins before its children.
        for segment in sorted(mine, key=lambda s: (s.start, s.end)):
            try:
                file = segment.open()
                made = (file.meta["format"], file.meta["key"], file.meta["made_with"])
                if made != (FORMAT, key, MADE_WITH):
                    continue
                found = Layout(
                    tuple(file.meta["kinds"]), tuple(tuple((i, s) for i, s in g) for g in file.meta["groups"])
                )
                layout = layout or found
                before = known.get(segment.parent, np.zeros(0, dtype=np.int32))[: segment.start]
                if found != layout or len(before) != segment.start:
                    continue
                tokens = np.concatenate([before, np.array(file.read("tokens"))])
                known[segment.id] = tokens
                rates[segment.used] = float(file.meta["ms_per_token"])
                _graft(tree, layout, tokens, segment, file)
            except (OSError, ValueError, KeyError, TypeError):
                segment.state = "dead"
        return layout, rates[max(rates)] if rates else 0.0

    # Writing ---------------------------------------------------------------------------------------------------------

    def keep(self, key: str, layout: Layout, node: Node, ms_per_token: float = 0.0) -> None:
        """Write, in the background, what of the path to this node is on no file yet."""
        if node.end < self.least or self._errors >= MAX_ERRORS:
            return
        parent, covered = "", 0
        held: list[Tokens] = []
        for step in node.lineage():
            held.append(step.tokens)
            fresh = next((i for i, b in enumerate(step.blocks) if not _stored(b.source)), len(step.blocks))
            start = step.start + sum(b.length for b in step.blocks[:fresh]) if layout.groups else covered
            point = step.checkpoint if step.checkpoint is not None and not _stored(step.checkpoint.source) else None
            if fresh == len(step.blocks) and point is None:
                source = step.blocks[-1].source if step.blocks else step.checkpoint and step.checkpoint.source
                if isinstance(source, Segment):
                    parent, covered = source.id, step.end
                continue
            if fresh and isinstance(source := step.blocks[fresh - 1].source, Segment):
                parent = source.id
            blocks = step.blocks[fresh:]
            if not all(b.held for b in blocks) or (point is not None and not point.held):
                return
            tokens = np.concatenate(held)
            segment = self._segment(key, tokens, start, parent, point is not None)
            facts = {"key": key, "label": self.label, "ms_per_token": ms_per_token}
            if not self._write(segment, _encode(facts, layout, tokens[start:], step, blocks, point, segment)):
                return
            for i, block in enumerate(blocks):
                block.source, block.index, block.offset = segment, i, 0
            if point is not None:
                point.source = segment
            parent, covered = segment.id, step.end

    def _segment(self, key: str, tokens: Tokens, start: int, parent: str, point: bool) -> Segment:
        name = hashlib.blake2b(f"{key}|{start}|{point}|".encode() + tokens.tobytes(), digest_size=16).hexdigest()
        path = self.folder / digest(key) / f"{name}{SUFFIX}"
        return Segment(path, digest(key), parent, start, len(tokens), 0, 0.0, self.label, "pending")

    def _write(self, segment: Segment, content: Encoded) -> bool:
        with self._lock:
            if self._pending + content.nbytes > self.max_pending or content.nbytes + HEADER > self.limit:
                return False
            self._pending += content.nbytes
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="dspark-prefix-disk", daemon=True)
            self._thread.start()
        self._queue.put(_Job(segment, content, self._era))
        return True

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            segment = job.segment
            try:
                segment.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._make_room(job.content.nbytes + HEADER, segment)
                # What it follows on may have gone since it was handed over: nobody could ever read it.
                if job.era == self._era and self._follows(segment):
                    job.content.write(segment.path)
                    with self._lock:
                        self._settle(job)
                else:
                    segment.state = "dead"
            except OSError as error:
                segment.state = "dead"
                self._errors += 1
                full = error.errno == errno.ENOSPC
                reason = "the disk is full" if full else f"{error.strerror or error}"
                self._error = f"The prefix cache could not be written to {self.folder}: {reason}."
            finally:
                with self._lock:
                    self._pending -= job.content.nbytes
                del job

    def _settle(self, job: _Job) -> None:
        """Enter what was written, unless everything was deleted meanwhile."""
        segment = job.segment
        if job.era != self._era:
            segment.state = "dead"
            segment.path.unlink(missing_ok=True)
            return
        written = segment.path.stat()
        segment.used, segment.nbytes = written.st_mtime, written.st_size
        segment.state = "alive"
        self.index()[segment.id] = segment

    def _follows(self, segment: Segment) -> bool:
        with self._lock:
            parent = self.index().get(segment.parent)
        return not segment.start or (parent is not None and parent.alive)

    def _make_room(self, need: int, coming: Segment) -> None:
        """Delete least recently used leaves until `need` more bytes fit, and nothing that `coming` follows on."""
        with self._lock:
            segments = self.index()
            alive = {i: s for i, s in segments.items() if s.alive}
            total = sum(s.nbytes for s in alive.values())
            above = segments.get(coming.parent)
            while above is not None:
                alive.pop(above.id, None)
                above = segments.get(above.parent)
            while total + need > self.limit and alive:
                parents = {s.parent for s in alive.values()}
                leaves = [s for s in alive.values() if s.id not in parents] or list(alive.values())
                victim = min(leaves, key=_last_used)
                victim.state = "dead"
                victim.path.unlink(missing_ok=True)
                total -= victim.nbytes
                del alive[victim.id], segments[victim.id]

    # Housekeeping ----------------------------------------------------------------------------------------------------

    def stats(self) -> DiskStats:
        with self._lock:
            alive = [s for s in self.index().values() if s.alive]
        return DiskStats(len(alive), sum(s.nbytes for s in alive), self._errors, self._error)

    def clear(self) -> int:
        """Delete all files, also those about to be written; returns the bytes freed."""
        freed = 0
        with self._lock:
            self._era += 1
            for segment in self.index().values():
                segment.state = "dead"
                with contextlib.suppress(OSError):
                    segment.path.unlink()
                    freed += segment.nbytes
            self._segments = {}
        return freed

    def close(self, timeout: float = 30.0) -> None:
        """Finish what is being written."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout)
            self._thread = None


def default_folder() -> Path:
    return paths.cache() / "prefix"


def _last_used(segment: Segment) -> float:
    try:
        return segment.path.stat().st_mtime
    except OSError:
        return 0.0


def _stored(source: object) -> bool:
    """On a file, or about to be."""
    return isinstance(source, Segment) and source.state != "dead"


def _encode(
    facts: dict[str, Any],
    layout: Layout,
    tokens: Tokens,
    node: Node,
    blocks: list[Block],
    point: Checkpoint | None,
    segment: Segment,
) -> Encoded:
    arrays: dict[str, mx.array] = {"tokens": mx.array(tokens)}
    for j, block in enumerate(blocks):
        for g, x in enumerate(block.arrays):
            arrays[f"block{j}.{g}"] = x
    states: list[dict[str, Any]] = []
    for i, layer in (point.layers if point is not None else None) or ():
        data = pack(layer.data, "point", arrays)
        entry = {"layer": i, "kind": layer.kind, "length": layer.length, "data": data}
        states.append(entry | {"nbytes": layer.nbytes, "from": layer.trimmable_from})
    contexts: dict[str, Any] = {}
    for name, context in node.contexts.items():
        extra: dict[str, mx.array] = {}
        with contextlib.suppress(ValueError, KeyError):
            contexts[name] = pack(context, f"context.{name}", extra)
            arrays |= extra
    meta = {
        **facts,
        "format": FORMAT,
        "made_with": MADE_WITH,
        "parent": segment.parent,
        "start": segment.start,
        "end": segment.end,
        "kind": node.kind,
        "kinds": layout.kinds,
        "groups": layout.groups,
        "lengths": [b.length for b in blocks],
        "weights": [b.nbytes for b in blocks],
        "checkpoint": states,
        "contexts": contexts,
    }
    return encode(meta, arrays)


def _graft(tree: Tree, layout: Layout, tokens: Tokens, segment: Segment, file: Opened) -> None:
    """One file's node in the tree; nothing but its tokens was read."""
    if not len(tokens):
        return
    meta = file.meta

    def fill(start: int, stop: int) -> list[Block]:
        """What the tree lacks at this moment; all of a file that overlaps with another is never needed."""
        if start < segment.start:
            raise ValueError(f"{segment.path.name} follows on something that is not there")
        cold = zip(meta["lengths"], meta["weights"], strict=True)
        blocks = [Block(n, [], segment, j, 0, weight) for j, (n, weight) in enumerate(cold)]
        return cover(divide(blocks, start - segment.start)[1], stop - start, layout)

    node = tree.insert(tokens, fill)
    node.kind = meta["kind"]
    if meta["checkpoint"] and node.checkpoint is None:
        oldest = max(x["from"] for x in meta["checkpoint"])
        weight = sum(x["nbytes"] for x in meta["checkpoint"])
        node.checkpoint = Checkpoint(len(tokens), None, segment, oldest, weight)
