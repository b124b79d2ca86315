"""What is said while a model is made ready: the same words in every front end."""

from __future__ import annotations

import io

import pytest

from cli.progress import Reporter
from engine.errors import Cancelled
from engine.hub import Progress
from tui import engine_api

STEPS = [
    Progress("find", text="smol"),
    Progress("download", 1_000_000, 2_000_000, "smol"),
    Progress("download", 2_000_000, 2_000_000, "smol"),
    Progress("load", text="smol"),
    Progress("note", text="checking the model"),
    Progress("note", text="The drafter x was trained otherwise."),
    Progress("warmup", text="this machine, 10 %"),
    Progress("ready", text="smol"),
]
SAID = ["downloading smol", "loading smol", "checking the model", "The drafter x was trained otherwise."]


def test_a_note_is_said_as_it_is_and_what_takes_no_time_is_not_said() -> None:
    out = io.StringIO()
    reporter = Reporter(out, verbose=True)
    for step in STEPS:
        reporter.progress(step)
    assert out.getvalue().splitlines() == [*SAID, "measuring this machine, 10 %"]

    told: list[str] = []
    listener = engine_api.told(lambda progress: told.append(progress.text))
    for step in STEPS:
        listener(step)
    assert list(dict.fromkeys(told)) == [*SAID, "measuring this machine, 10 %"]


@pytest.mark.parametrize("step", [Progress("load", text="smol"), Progress("note", text="checking the model")])
def test_a_load_ends_between_two_of_its_steps(step: Progress) -> None:
    with pytest.raises(Cancelled, match=r"^Loading was stopped\.$"):
        engine_api.told(lambda _: None, lambda: True)(step)
