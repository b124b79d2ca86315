"""What the app says of drafters that cannot run, and of those that do not do what they should."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tui.fakes import FakeDrafter, FakeEngine
from tui.commands import registry as commands
from tui.conversation.session import ChatSession
from tui.widgets.panels import drafters
from tui.widgets.panels.base import Figures

LIST = [
    FakeDrafter("lookup"),
    FakeDrafter("mute", detail="proposed nothing 32 times in a row; `dspark-chat probe` tells\nwhy\x1b[2J"),
    FakeDrafter("dspark", available=False, reason="not downloaded"),
]


def test_a_fault_stands_beside_the_name() -> None:
    rows = drafters.draw(Figures(drafters=LIST, drafter="mute"), 120).plain.split("\n")
    assert rows[0] == "  1 lookup"
    assert rows[1].startswith("› 2 mute: proposed nothing 32 times in a row; `dspark-chat probe` tells why")
    assert "\x1b" not in rows[1]
    assert rows[2] == "  3 dspark: not downloaded"
    narrow = drafters.draw(Figures(drafters=LIST, drafter="mute"), 30).plain.split("\n")
    assert len(narrow) == 3
    assert all(len(row) <= 30 for row in narrow)


@pytest.mark.parametrize("name", ["drafter", "drafters"])
async def test_the_command_says_it_too(name: str) -> None:
    class Host:
        session = ChatSession()

    host: Any = Host()
    host.session.engine = FakeEngine(manual=True, drafters=LIST, drafter="lookup")
    said = str(await commands.run(host, *commands.parse(f"/{name}")))
    assert "› lookup\n  mute: proposed nothing" in said
    assert "dspark: not downloaded" in said
