"""The line under an answer that says how to have it again: complete, and the same when the chat is opened later."""

from __future__ import annotations

from dataclasses import replace

from engine.types import Round, Source
from tests.tui.drive import ask, running, shown, wait_until
from tests.tui.fakes import script
from tui.conversation import answer_json
from tui.conversation.chat import Answer, Chat
from tui.conversation.compare import standings
from tui.widgets.transcript.reproduction_line import certificate

TEXT = "some words that are said in blocks of several tokens, again and again, until they are over"


def answer(**kwargs: object) -> Answer:
    found = Answer(seed=7)
    for event in script(TEXT):
        list(found.take(replace(event, **kwargs) if isinstance(event, Round) else event))
    return found


def again(found: Answer) -> Answer:
    """As it comes back from the store."""
    return answer_json.load_answer(answer_json.dump_answer(found))


def test_seed_drafter_length_and_acceptance_are_named() -> None:
    found = answer(chain="lookup+dflash")
    tally = found.tally
    parts = certificate(found)
    assert "drafter lookup+dflash k=3" in parts
    assert f"accepted {tally.accepted}/{tally.drafted} ({tally.acceptance:.2f})" in parts
    assert parts[-1] == "seed 7"


def test_a_switch_and_changing_lengths_show() -> None:
    found = answer()
    last = found.rounds[-1]
    for i, (name, cap) in enumerate([("dflash", 5), ("lookup", 1)]):
        round = Round("", 90 + i, last.start + 9 + i, (1, 2), (1,), 1, Source.LOOKUP, name, cap)
        list(found.take(round))
    assert "drafter dflash → lookup k=1–5" in certificate(found)


def test_plain_answers_claim_no_drafts() -> None:
    found = Answer()
    for i in range(5):
        list(found.take(Round("", i, i, (i,), drafter="none", verify_ms=50.0)))
    assert certificate(found) == ["drafter none"]


def test_it_is_the_same_for_an_answer_that_was_stored() -> None:
    found = answer(chain="lookup+dflash")
    restored = again(found)
    assert certificate(restored) == certificate(found)
    assert [s.name for s in standings([restored])] == ["lookup+dflash"]
    old = answer_json.dump_answer(found)
    rounds, ends = answer_json.unpack(old["rounds"])
    old["rounds"] = answer_json.pack([r[:14] for r in rounds], ends)  # as they were kept before chains were
    assert [s.name for s in standings([answer_json.load_answer(old)])] == ["dflash"]


async def test_every_answer_has_one_also_in_a_chat_that_was_opened_later() -> None:
    async with running(size=(90, 40)) as (app, pilot, engine):
        for text in ("one", "two"):
            ticket = await ask(pilot, engine, text)
            ticket.prefilled(cached=6 if text == "two" else 0)
            ticket.say(*script(TEXT))
            ticket.finish()
            await wait_until(pilot, lambda: not app.session.busy)
        assert app.library.store is not None
        app.library.store.settle()
        id = app.session.chat.id
        await app.main.show_chat(app.library.new())
        await pilot.pause()
        assert "accepted" not in shown(app)
        found = app.library.load(id)
        assert isinstance(found, Chat)
        await app.main.show_chat(found)

        def words() -> str:
            return " ".join(shown(app).split())

        await wait_until(pilot, lambda: words().count("drafter dflash k=3 · accepted") == 2)
        assert "cache 6/" in words()
        for turn in app.session.chat.turns:
            for part in certificate(turn.answer):
                assert part in words()
