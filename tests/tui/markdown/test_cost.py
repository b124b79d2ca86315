"""Growing answers stay cheap: the last drawings of 4 000 tokens take about the work that the first ones did."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable

import pytest

from benchmarks.render import answer
from tui.markdown.document import Document

CONSTRUCTS = {
    "mixed": answer(4000),
    "code": "```python\n" + "value = compute(1, 'two')  # and so on\n" * 420,
    "list": "- one item with **some** words in it\n" * 430,
    "paragraphs": ("words " * 60 + "\n\n") * 44,
}


def calls(work: Callable[[], object]) -> int:
    """How many functions are called: parser and highlighter are Python, and a clock would measure who else is busy."""
    count = 0

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_the_end_costs_what_the_beginning_did(name: str) -> None:
    text = CONSTRUCTS[name]
    document = Document(78)
    costs = []
    for at in range(0, len(text), 28):  # seven tokens, a thirtieth of a second at 200 a second

        def draw(at: int = at) -> None:
            document.feed(text[at : at + 28], 1 + at % 3)
            document.settle()

        costs.append(calls(draw))
    eighth = len(costs) // 8
    first, last = statistics.median(costs[1:eighth]), statistics.median(costs[-eighth:])
    assert first > 20
    assert last <= 1.5 * first
