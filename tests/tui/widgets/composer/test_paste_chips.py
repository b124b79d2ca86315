"""Long pastes as chips, and the history that keeps them."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tui.conversation.input_history import Form, History, Search
from tui.widgets.composer.paste_chips import Chips

LONG = "\n".join(f"line {i}" for i in range(214))


@given(st.lists(st.text(min_size=1), max_size=4), st.text(max_size=20))
def test_what_is_sent_is_what_was_pasted(pastes: list[str], typed: str) -> None:
    chips = Chips()
    labels = [chips.add(text) for text in pastes]
    shown = typed.join(["", *labels, ""])
    assert chips.expand(shown) == typed.join(["", *pastes, ""]) or any(label in typed for label in labels)


def test_labels_say_how_much_and_differ() -> None:
    chips = Chips()
    assert chips.add(LONG) == chips.add(LONG) == "[pasted 214 lines]"
    assert chips.add(LONG.upper()) == "[pasted 214 lines #2]"
    assert chips.add(f"{LONG}\n\n") == "[pasted 214 lines #3]"
    assert chips.add("x" * 5120) == "[pasted 5,120 characters]"
    assert not Chips.wanted("a\n" * 9) and Chips.wanted("a\n" * 10) and Chips.wanted("x" * 1001)


def test_a_lookalike_is_text_and_a_paste_is_not_expanded_twice() -> None:
    chips = Chips()
    assert chips.expand("[pasted 3 lines]") == "[pasted 3 lines]"
    inner = chips.add(LONG)
    outer = chips.add(f"{inner}\n" * 12)
    assert chips.expand(outer) == f"{inner}\n" * 12
    assert chips.around(f"a {inner}", 1) is None
    assert chips.around(f"a {inner}", 5) == (2, 2 + len(inner))
    assert chips.fold(f"before {LONG} after") == f"before {inner} after"


def test_the_history_keeps_chips_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = History(path)
    history.add("plain")
    history.add(f"see {LONG}", Form("see [pasted 214 lines]", {"[pasted 214 lines]": LONG}))
    with path.open("a") as file:
        file.write('{"text": "odd", "shown": 3, "pastes": []}\n{"text": 5}\n[[[\n"last"\n')
    again = History(path)
    assert again.items == ["plain", f"see {LONG}", "odd", "last"]
    assert again.form(f"see {LONG}") == Form("see [pasted 214 lines]", {"[pasted 214 lines]": LONG})
    assert again.form("odd") == Form("odd")
    assert json.loads(path.read_text().splitlines()[0]) == "plain"


def test_searching_back_and_forth() -> None:
    history = History()
    for text in ("alpha one", "beta", "alpha two", "gamma"):
        history.add(text)
    search = Search(history, "draft")
    search.say("a")
    assert search.found == "gamma"
    search.say("al")
    assert search.found == "alpha two"
    search.older()
    assert search.found == "alpha one"
    search.older()
    assert (search.found, search.failing) == ("alpha one", True)
    search.newer()
    assert (search.found, search.failing) == ("alpha two", False)
    search.say("alx")
    assert (search.found, search.failing) == ("alpha two", True)
    search.say("")
    assert not search.failing
