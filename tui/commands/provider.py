"""The slash commands in Textual's palette; one that takes words is begun in the message, where they are completed."""

from __future__ import annotations

from functools import partial
from typing import Any

from textual.command import DiscoveryHit, Hit, Hits, Provider

from tui.commands.registry import COMMANDS, Command


class SlashCommands(Provider):
    """For a screen that has `action_command`, and a message `area`."""

    async def discover(self) -> Hits:
        for command in sorted(COMMANDS, key=lambda c: c.usage):
            yield DiscoveryHit(command.usage, self._choice(command), help=command.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in COMMANDS:
            if (score := matcher.match(command.usage)) > 0:
                yield Hit(score, matcher.highlight(command.usage), self._choice(command), help=command.help)

    def _choice(self, command: Command) -> Any:
        screen: Any = self.screen
        if command.words:
            return partial(screen.area.begin, f"/{command.name} ")
        return partial(screen.action_command, command.name)
