"""What is typed while the plain mode computes waits for its next prompt, unseen and as it was typed.

Left to itself a terminal shows it in the middle of the answer, and turns Enter into the key for a new line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import IO


@contextlib.contextmanager
def kept(terminal: IO[str]) -> Generator[None]:
    """For the time of the block. Ctrl+C still interrupts; what is no terminal stays as it is."""
    try:
        import termios
    except ImportError:  # no such terminals on this system
        yield
        return
    try:
        number = terminal.fileno()
        before = termios.tcgetattr(number)
    except (OSError, ValueError, termios.error):
        yield
        return
    quiet = [*before]
    quiet[0] = before[0] & ~termios.ICRNL
    quiet[3] = before[3] & ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(number, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # a terminal that is gone
            termios.tcsetattr(number, termios.TCSADRAIN, before)
