"""What lies over the conversation: the key that stops an answer leaves it."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.binding import BindingType
from textual.screen import ModalScreen

from tui.keys import leaving_bindings

T = TypeVar("T")


class Overlay(ModalScreen[T]):
    """The base of all screens but the one of the conversation."""

    BINDINGS: ClassVar[list[BindingType]] = [*leaving_bindings()]

    def action_dismiss_none(self) -> None:
        """Leave without a choice."""
        self.dismiss(None)
