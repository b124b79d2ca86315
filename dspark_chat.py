"""dspark-chat: the command's entry point and the public Python names.

    from dspark_chat import Request, Sampling, load

A checkout imports engine, server, tui, themes and cli from the repository root. A wheel carries them inside
dspark_chat_app/, so that site-packages gains no generic names. Names are resolved when asked for: nothing heavy is
imported before.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.engine import Engine as Engine
    from engine.errors import DsparkError as DsparkError
    from engine.load import load as load
    from engine.types import Event as Event
    from engine.types import Failed as Failed
    from engine.types import Finished as Finished
    from engine.types import Piece as Piece
    from engine.types import Prefilled as Prefilled
    from engine.types import Prefilling as Prefilling
    from engine.types import Request as Request
    from engine.types import Round as Round
    from engine.types import Sampling as Sampling
    from engine.types import Source as Source
    from engine.types import Tokens as Tokens
    from engine.types import Usage as Usage

_HERE = Path(__file__).resolve().parent
_HOME = _HERE / "dspark_chat_app" if (_HERE / "dspark_chat_app").is_dir() else _HERE
# First on the path, so that a folder called `engine` where the user happens to stand is not taken for ours.
if sys.path[:1] != [str(_HOME)]:
    sys.path.insert(0, str(_HOME))

_NAMES = {
    "__version__": "engine",
    "load": "engine.load",
    "Engine": "engine.engine",
    "DsparkError": "engine.errors",
    **dict.fromkeys(
        (
            "Request",
            "Sampling",
            "Source",
            "Event",
            "Prefilling",
            "Prefilled",
            "Round",
            "Tokens",
            "Piece",
            "Usage",
            "Finished",
            "Failed",
        ),
        "engine.types",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'dspark_chat' has no attribute {name!r}")
    engine = import_module("engine")
    origin = Path(engine.__file__ or "").resolve()
    if not origin.is_relative_to(_HOME):
        raise ImportError(f"another package named 'engine' was imported before dspark_chat: {origin}")
    import_module("engine.backend")  # its BLAS must be loaded before mlx is
    return getattr(import_module(_NAMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    from cli.main import main as run

    return run(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
