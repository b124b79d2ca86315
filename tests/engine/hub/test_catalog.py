"""Model cards: all parse, names match exactly after quantisation suffixes, a bad card is listed and not fatal."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.hub import DEFAULT, drafter_path
from engine.hub import catalog as catalog_module
from engine.hub.catalog import BUNDLED, basename, catalog, parse, read, stripped

CARDS = sorted((Path(catalog_module.__file__).parent / "cards").glob("*.toml"))


@pytest.mark.parametrize("file", CARDS, ids=lambda file: file.stem)
def test_every_card_parses_and_is_named_by_its_file(file: Path):
    card = parse(file)
    assert card.id == file.stem == card.id.lower()
    assert card.title
    assert "/" in card.target or card.target.startswith("wheel:")
    for reference in card.drafters.values():
        if reference.startswith(BUNDLED):
            assert drafter_path(reference) is not None
        else:
            assert reference.count("/") == 1


def test_no_two_cards_answer_to_one_name():
    names = [name for card in catalog().cards for name in {card.id, *card.aliases, basename(card.target)}]
    assert len(names) == len(set(names))


def test_the_default_model_has_a_card():
    assert catalog().exact(DEFAULT) is not None
    assert catalog().exact("default") is catalog().exact(DEFAULT)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mlx-community/Qwen3-4B-8bit", "qwen3-4b"),
        ("mlx-community/Qwen3-4B-4bit-DWQ-053125", "qwen3-4b"),
        ("Qwen/Qwen3-4B-MLX-bf16", "qwen3-4b"),
        ("qwen3-4b-mxfp4", "qwen3-4b"),
        ("/models/Qwen3-8B-6bit/", "qwen3-8b"),
        ("~/.cache/hub/models--mlx-community--Qwen3-14B-8bit/snapshots/0123", "qwen3-14b"),
        ("Qwen3.8-27B-8bit", "qwen3.8-27b-8bit"),
        ("Qwen3.8-27B-6bit", "qwen3.8-27b"),
        ("Qwen3-4B-Instruct-2507-4bit", None),
        ("Qwen3-4B-Base", None),
        ("Huihui-Qwen3-4B-abliterated-4bit", None),
        ("my-qwen3-4b", None),
        ("", None),
    ],
)
def test_names_match_cards_exactly(name: str, expected: str | None):
    card = catalog().by_name(name)
    assert (card.id if card else None) == expected


def test_suffixes_come_off_one_by_one():
    assert stripped("Qwen3-4B-MLX-4bit") == ["qwen3-4b-mlx-4bit", "qwen3-4b-mlx", "qwen3-4b"]
    assert stripped("llama-3.1-8b") == ["llama-3.1-8b"]


def test_auto_takes_the_best_then_any_then_lookup():
    card = catalog().exact("qwen3.8-27b")
    assert card is not None
    assert [mode for mode, _ in card.drafters_in_order()] == ["dflash", "dspark", "lookup"]
    assert [mode for mode, _ in card.drafters_in_order("dspark")] == ["dspark"]
    assert card.drafters_in_order("none") == (("none", ""),)
    only = catalog().exact("qwen3-14b")
    assert only is not None
    assert only.drafters_in_order("dflash") == ()


GOOD = 'id = "x"\ntarget = "a/x"\nfamily = "qwen3"\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id = ", "Invalid value"),
        ('id = "x"\n', "`target` is missing"),
        (GOOD + 'colour = "red"\n', "unknown key colour"),
        (GOOD + 'mode = "dspark"\n', "has no drafter"),
        (GOOD + 'mode = "magic"\n', "has no drafter"),
        (GOOD + '[drafters]\neagle = "a/b"\n', "takes dspark and dflash"),
    ],
)
def test_a_bad_card_is_listed_with_its_reason_and_the_rest_is_read(tmp_path: Path, text: str, reason: str):
    (tmp_path / "a.toml").write_text(text)
    (tmp_path / "b.toml").write_text(GOOD)
    found = read(tmp_path)
    assert [card.id for card in found.cards] == ["x"]
    assert len(found.broken) == 1
    assert reason in found.broken[0][1]


def test_a_later_card_replaces_an_earlier_one(tmp_path: Path):
    for folder, title in (("built-in", "one"), ("own", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.toml").write_text(GOOD + f'title = "{title}"\n')
    assert [card.title for card in read(tmp_path / "built-in", tmp_path / "own").cards] == ["two"]


def test_a_folder_without_cards_is_fine(tmp_path: Path):
    assert read(tmp_path / "nothing").cards == ()
