"""Where is this model? One resolver for loading, fetching, listing and "is it installed?"; it knows no network.

Order: an existing path; a name of the catalog; a repository `owner/name` on disk (hub cache, LM Studio, extra folders);
a bare folder name on disk. A repository that is on no disk is still an answer: it would have to be fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from engine import paths
from engine.drafters import registry
from engine.errors import DsparkError, UnknownModel
from engine.hub import embedded
from engine.hub.catalog import BUNDLED, Card, catalog
from engine.hub.check import missing_files, weight_files
from engine.hub.types import Found, Place
from engine.weight_files.json_file import read_object

DEFAULT = "smollm2-135m"
BUNDLED_FOLDER = Path(__file__).parents[1] / "drafters" / "bundled"
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_GGUF_SCHEME = "gguf:"
_GGUF = re.compile(rf"({_REPO.pattern})/([\w.-]+(?:/[\w.-]+)*\.gguf)", re.IGNORECASE)


def find(name: str = "", folders: Sequence[Path | str] = ()) -> Found:
    """Resolve a model name.

    name: empty for the embedded model, a card's id or alias, `owner/name`, a folder, a .gguf file, or the name of a
    folder that lies in one of the known places. folders: further places, each holding `owner/name` or `name` folders.

    Raises:
        UnknownModel: with the nearest names.
    """
    name = name.strip() or DEFAULT
    path = Path(name).expanduser()
    if path.exists() and (path.is_dir() or path.suffix == ".gguf"):
        return _at(path.resolve(), "path", str(path), catalog().by_name(str(path.resolve())))
    card = catalog().exact(name)
    if card is not None and embedded.is_embedded(card):
        file = embedded.path(card)
        return Found(card.id, "embedded", file, card=card, size=file.stat().st_size if file else 0)
    repo = card.target if card is not None else name
    if _REPO.fullmatch(repo) and not name.startswith((".", "~")):
        found = on_disk(repo, folders)
        return found or Found(card.id if card else repo, "none", repo=repo, card=card or catalog().by_name(repo))
    everything = list(installed(folders))
    for found in everything:
        if found.name.lower().rsplit("/", 1)[-1] == name.lower():
            return found
    raise _unknown(name, [found.name for found in everything if found.kind == "model"])


def drafter_path(reference: str, folders: Sequence[Path | str] = ()) -> Path | None:
    """Folder or file of a drafter reference; None when it is not on disk.

    A reference is a path, `bundled:<name>`, a repository, or one GGUF file of a repository (`owner/name/file.gguf`);
    the last, and paths, also with `gguf:` in front.
    """
    if reference.startswith(BUNDLED):
        folder = BUNDLED_FOLDER / reference.removeprefix(BUNDLED)
        return folder if folder.is_dir() else None
    path = Path(reference.removeprefix(_GGUF_SCHEME)).expanduser()
    if path.exists():
        return path
    if (wanted := gguf_in(reference)) is not None:
        return _gguf_on_disk(*wanted, folders)
    found = on_disk(reference, folders) if _REPO.fullmatch(reference) else None
    return found.path if found is not None and found.installed else None


def gguf_in(reference: str) -> tuple[str, str] | None:
    """(repository, file) where a reference names one GGUF file of a repository."""
    match = _GGUF.fullmatch(reference.removeprefix(_GGUF_SCHEME))
    return (match[1], match[2]) if match and ".." not in match[2].split("/") else None


def _gguf_on_disk(repo: str, file: str, folders: Sequence[Path | str]) -> Path | None:
    owner, name = repo.split("/", 1)
    places = _snapshots(paths.hub_cache() / f"models--{owner}--{name}")
    places += [root / part for _, root in _roots(folders) for part in (repo, name)]
    return next((place / file for place in places if (place / file).is_file()), None)


def on_disk(repo: str, folders: Sequence[Path | str] = ()) -> Found | None:
    """The best copy of a repository on disk: a complete one wherever it lies, else an interrupted one."""
    owner, name = repo.split("/", 1)
    card = catalog().by_name(repo)
    best: Found | None = None
    for place, folder in _copies(owner, name, folders):
        found = _at(folder, place, repo, card, repo=repo)
        if found.installed:
            return found
        best = best or found
    return best


def installed(folders: Sequence[Path | str] = ()) -> Iterator[Found]:
    """Everything on disk that looks like a checkpoint, the embedded model first, each repository once."""
    card = catalog().exact(DEFAULT)
    if card is not None and (file := embedded.path(card)):
        yield Found(card.id, "embedded", file, card=card, size=file.stat().st_size)
    seen: set[str] = set()
    for repo, place, folder in _everything(folders):
        if repo.lower() not in seen and (folder / "config.json").is_file():
            seen.add(repo.lower())
            found = on_disk(repo, folders) if "/" in repo else None
            yield found or _at(folder, place, repo, catalog().by_name(repo))


def _copies(owner: str, name: str, folders: Sequence[Path | str]) -> Iterator[tuple[Place, Path]]:
    for snapshot in _snapshots(paths.hub_cache() / f"models--{owner}--{name}"):
        yield "hub", snapshot
    for place, root in _roots(folders):
        # Folder names are compared without case: LM Studio keeps the case of its own search results.
        for candidate in (*_children(root / owner), *_children(root)):
            if candidate.name.lower() == name.lower() and (candidate / "config.json").is_file():
                yield place, candidate


def _roots(folders: Sequence[Path | str]) -> list[tuple[Place, Path]]:
    extra: list[tuple[Place, Path]] = [("folder", Path(f).expanduser()) for f in folders]
    return [*(("lm-studio", f) for f in paths.lm_studio()), *extra]


def _everything(folders: Sequence[Path | str]) -> Iterator[tuple[str, Place, Path]]:
    for repo_folder in _children(paths.hub_cache()):
        parts = repo_folder.name.split("--")
        if len(parts) == 3 and parts[0] == "models":
            for snapshot in _snapshots(repo_folder):
                yield "/".join(parts[1:]), "hub", snapshot
    for place, root in _roots(folders):
        for first in _children(root):
            if (first / "config.json").is_file():
                yield first.name, place, first
            for second in _children(first):
                yield f"{first.name}/{second.name}", place, second


def _children(folder: Path) -> Iterable[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.is_dir())
    except OSError:
        return ()


def _snapshots(repo_folder: Path) -> list[Path]:
    """Snapshots of a hub cache entry, that of `main` first, then the newest."""
    snapshots = sorted(_children(repo_folder / "snapshots"), key=lambda p: p.stat().st_mtime, reverse=True)
    try:
        main = (repo_folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        main = ""
    return sorted(snapshots, key=lambda p: p.name != main)


def _at(path: Path, place: Place, name: str, card: Card | None, repo: str = "") -> Found:
    if path.is_file():
        return Found(name, place, path, card=card, size=path.stat().st_size)
    try:
        missing = missing_files(path) if (path / "config.json").is_file() else ("config.json",)
    except DsparkError:
        missing = ("model.safetensors.index.json",)
    size = sum(p.stat().st_size for p in weight_files(path) if p.is_file())
    return Found(name, place, path, repo, card, missing, size, _kind(path, name))


def _kind(path: Path, name: str) -> Literal["model", "drafter", "other"]:
    """By the card that names it, else by the architecture that its config claims."""
    if any(name in card.drafters.values() for card in catalog().cards):
        return "drafter"
    try:
        config: Any = read_object(path / "config.json")
        architectures = " ".join(config.get("architectures") or [])
    except (DsparkError, TypeError):
        return "other"
    if re.search("|".join((*registry.learned(), "speculator", "eagle", "draft")), architectures + name, re.IGNORECASE):
        return "drafter"
    return "model" if re.search(r"CausalLM|ConditionalGeneration|LMHead", architectures) else "other"


def _unknown(name: str, more: Sequence[str]) -> UnknownModel:
    near = catalog().nearest(name, tuple(more))
    hint = f" Did you mean {' or '.join(near)}?" if near else " `dspark-chat models` lists what is known."
    if any(sep in name for sep in ("/", "\\")) or name.startswith((".", "~")):
        return UnknownModel(f"There is no model at {name}.{hint}", near)
    return UnknownModel(f"No model is called {name!r}; a hub repository is written owner/name.{hint}", near)
