"""Finding models on disk and fetching them: `find`, `ensure`, `installed`, `check_folder`.

Everything that asks where a model is asks here, so that loading, listing and fetching cannot disagree. Loads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.errors import DsparkError
from engine.hub import embedded
from engine.hub.check import check_folder, refuse_code, trust_remote_code, trusted
from engine.hub.fetch import Plan, fetch_repo, plan_repo
from engine.hub.find import BUNDLED_FOLDER, DEFAULT, drafter_path, find, gguf_in, installed, on_disk
from engine.hub.types import Found, Listener, Progress, Stop

__all__ = [
    "BUNDLED_FOLDER",
    "DEFAULT",
    "Found",
    "Listener",
    "Plan",
    "Progress",
    "Stop",
    "check_folder",
    "drafter_path",
    "ensure",
    "ensure_drafter",
    "fetch_repo",
    "find",
    "installed",
    "on_disk",
    "plan_repo",
    "refuse_code",
    "trust_remote_code",
    "trusted",
]


def ensure(
    name: str = "",
    *,
    folders: Sequence[Path | str] = (),
    on_progress: Listener | None = None,
    stop: Stop | None = None,
    fetch: bool = True,
) -> Found:
    """The model on disk, fetched when it is not there, whole and safe to load. No network when it is there.

    Raises:
        UnknownModel, WeightsMissing, WeightsDamaged, RemoteCodeRefused, Offline, NoSpace, Gated, FetchError, Cancelled.
    """
    found = find(name, folders)
    if on_progress:
        on_progress(Progress("find", text=found.name))
    if not found.installed and fetch:
        if found.place == "embedded" and found.card is not None:
            embedded.fetch(found.card, on_progress, stop)
            found = find(name, folders)
        elif found.repo:
            fetch_repo(found.repo, on_progress, stop)
            found = find(name, folders)
    if found.path is None:
        raise DsparkError(f"{found.name} is not on this machine. `dspark-chat --model {found.name}` fetches it.")
    if found.path.is_dir():
        check_folder(found.path, resume=f"dspark-chat models fetch {found.repo}" if found.repo else "")
    return found


def ensure_drafter(
    reference: str,
    *,
    folders: Sequence[Path | str] = (),
    on_progress: Listener | None = None,
    stop: Stop | None = None,
) -> Path:
    """Path of a drafter reference (see `drafter_path`), fetched when it is not on disk.

    Raises:
        As `ensure`.
    """
    path = drafter_path(reference, folders)
    if path is None and (wanted := gguf_in(reference)) is not None:
        repo, file = wanted
        path = fetch_repo(repo, on_progress, stop, files=(file,)) / file
    elif path is None:
        path = fetch_repo(reference, on_progress, stop)
    # Many drafter configs name code of their own (auto_map). It is harmless here: a drafter is read, never imported.
    return path
