"""`/model`, `/doctor` and `/log` line by line."""

from __future__ import annotations

import io

import pytest

from engine.config import Config
from engine.diagnostics import doctor
from engine.errors import FetchError
from tests.tui.fakes import FakeEngine, loader
from tests.tui.screens.test_models import FakeModels
from tui.options import Options
from tui.plain import models as plain_models
from tui.plain.chat import Plain


@pytest.fixture
def chat() -> tuple[Plain, io.StringIO]:
    out = io.StringIO()
    plain = Plain(Options(Config(), loader=loader(FakeEngine())), out, "bare")
    plain.load()
    return plain, out


def model(plain: Plain, words: str, models: FakeModels) -> str:
    return plain_models.command(plain.session, words, plain.say, models)


def test_the_list_marks_the_loaded_one(chat: tuple[Plain, io.StringIO]) -> None:
    plain, _ = chat
    lines = model(plain, "", FakeModels()).split("\n")
    assert any(line.startswith("› fake-135m") and "0.09 GB" in line for line in lines)
    assert any("far-4b" in line and "to fetch" in line for line in lines)
    assert not any("some/dspark" in line for line in lines)


@pytest.mark.parametrize("beside", [True, False])
def test_another_model_takes_over(chat: tuple[Plain, io.StringIO], beside: bool) -> None:
    plain, out = chat
    old = plain.session.engine
    models = FakeModels(beside=beside)
    assert "The chat goes on with it" in model(plain, "other-1b", models)
    assert plain.session.engine is models.engines["other-1b"]
    assert isinstance(old, FakeEngine)
    assert old.closed
    assert "downloading other-1b …" in out.getvalue()
    assert "loaded already" in model(plain, "other-1b", models)


@pytest.mark.parametrize("beside", [True, False])
def test_after_a_failure_the_old_model_is_there(chat: tuple[Plain, io.StringIO], beside: bool) -> None:
    plain, _ = chat
    said = model(plain, "other-1b", FakeModels(beside=beside, fail=FetchError("No such model.")))
    assert said == "No such model. fake-135m is still there."
    assert plain.session.engine is not None


async def test_unloaded_models_come_back_with_the_next_message(chat: tuple[Plain, io.StringIO]) -> None:
    plain, out = chat
    assert "is unloaded" in model(plain, "unload", FakeModels())
    assert model(plain, "unload", FakeModels()) == "No model is loaded."
    await plain.handle("hello")
    assert "Hello **world**." in out.getvalue()

    def fail(_: object) -> FakeEngine:
        raise FetchError("There are no weights.")

    model(plain, "unload", FakeModels())
    plain.options = Options(Config(), loader=fail)
    assert await plain.handle("again"), "it goes on"
    assert "There are no weights." in out.getvalue()


async def test_doctor_and_log(chat: tuple[Plain, io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    plain, out = chat
    monkeypatch.setattr(doctor, "examine", lambda *_a, **_k: [doctor.Fact("engine", "BLAS", "fine")])
    await plain.handle("/doctor")
    await plain.handle("/log")
    assert " BLAS                   fine" in out.getvalue()
    assert "Nothing was written to the log yet." in out.getvalue()
