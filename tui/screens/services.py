"""What the app gives to its screen."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from themes import Themes
from tui.conversation.input_history import History
from tui.conversation.library import ChatLibrary
from tui.conversation.session import ChatSession
from tui.options import Options
from tui.settings.preferences import Preferences, Wishes


@dataclass(frozen=True, slots=True)
class Services:
    """One of each."""

    options: Options
    session: ChatSession
    library: ChatLibrary
    history: History
    preferences: Preferences
    wishes: Wishes
    themes: Themes
    no_color: bool = False

    def notes(self, themes: Container[str]) -> list[str]:
        """What of the user's files was not understood. `themes`: those there are."""
        notes = [*self.session.start.notes, *self.wishes.notes]
        notes += [f"The theme {f.path} was left out: {f.reason}." for f in self.themes.failures]
        wanted = self.options.theme or self.preferences.theme
        if wanted and wanted not in themes:
            notes.append(f"There is no theme {wanted}; /theme lists them.")
        return notes
