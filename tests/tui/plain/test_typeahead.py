"""What is typed while an answer comes must not garble it, and Enter must stay Enter."""

from __future__ import annotations

import io
import os
import select

import pytest

from tui.plain.typeahead import kept

pty = pytest.importorskip("pty")
termios = pytest.importorskip("termios")


def waiting(number: int) -> bytes:
    return os.read(number, 100) if select.select([number], [], [], 0.2)[0] else b""


def test_what_is_typed_waits_unseen_and_as_it_was_typed() -> None:
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    with os.fdopen(slave, "r") as terminal:
        with kept(terminal):
            os.write(master, b"/help\r")
            assert waiting(master) == b"", "nothing is shown in the middle of an answer"
            assert waiting(slave) == b"/help\r", "Enter is not a new line"
        assert termios.tcgetattr(slave) == before
        os.write(master, b"x")
        assert waiting(master) == b"x"
    os.close(master)


def test_the_terminal_is_given_back_after_a_fault() -> None:
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    with os.fdopen(slave, "r") as terminal:
        with pytest.raises(KeyboardInterrupt), kept(terminal):
            raise KeyboardInterrupt
        assert termios.tcgetattr(slave) == before
    os.close(master)


def test_a_pipe_is_left_alone() -> None:
    with kept(io.StringIO("hello")):
        pass
