"""Writing in the user's own editor: $VISUAL, $EDITOR, or vi. Takes the terminal as it is; knows no screen."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from engine.chat.terminal_safe import clean
from engine.errors import UsageError


def edit(text: str) -> str:
    """`text` as it is after the editor was left.

    Raises:
        UsageError: an editor that cannot be started, or that says it failed; nothing has changed then.
    """
    name = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        command = shlex.split(name)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "message.md"
            path.write_text(text, encoding="utf-8")
            done = subprocess.run([*command, str(path)], check=False)
            if done.returncode:
                raise UsageError(f"{name} ended with code {done.returncode}, so the text is as it was.")
            written = path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{name} cannot be started ({reason}); set $EDITOR to another editor.") from error
    return clean(written).rstrip("\n")
