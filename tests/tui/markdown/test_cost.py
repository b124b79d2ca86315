"""Growing answers stay cheap: the last drawings of 4 000 tokens cost about what the first ones did."""

from __future__ import annotations

import statistics
import time

import pytest

from benchmarks.render import answer
from tui.markdown.document import Document

CONSTRUCTS = {
    "mixed": answer(4000),
    "code": "```python\n" + "value = compute(1, 'two')  # and so on\n" * 420,
    "list": "- one item with **some** words in it\n" * 430,
    "paragraphs": ("words " * 60 + "\n\n") * 44,
}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_the_end_costs_what_the_beginning_did(name: str) -> None:
    text = CONSTRUCTS[name]
    document = Document(78)
    costs = []
    for at in range(0, len(text), 28):  # seven tokens, a thirtieth of a second at 200 a second
        begun = time.thread_time()
        document.feed(text[at : at + 28], 1 + at % 3)
        document.settle()
        costs.append(time.thread_time() - begun)
    eighth = len(costs) // 8
    first, last = statistics.median(costs[1:eighth]), statistics.median(costs[-eighth:])
    assert last <= 2 * first + 0.0005
