"""Single settings are changed in the file; what a person wrote around them stays."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from engine import config
from tui.settings import toml_file
from tui.settings.toml_file import NotWritten, change

HAND = """# my settings
temperature = 0.7  # warm enough
mystery = "kept"

[keys]  # mine
view = "f9"
"""


def test_comments_and_unknown_entries_stay(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(HAND)
    change(file, {("temperature",): 0.2, ("top_p",): 0.9, ("presets", "terse"): {"system": 'Say "it" short.'}})
    text = file.read_text()
    for part in ("# my settings", "# warm enough", 'mystery = "kept"', "[keys]  # mine", 'view = "f9"'):
        assert part in text
    read = tomllib.loads(text)
    assert (read["temperature"], read["top_p"]) == (0.2, 0.9)
    assert read["presets"]["terse"]["system"] == 'Say "it" short.'
    change(file, {("top_p",): None, ("presets", "terse"): None, ("temperature",): 0.7, ("nothing", "here"): None})
    assert tomllib.loads(file.read_text()) == tomllib.loads(HAND) | {"presets": {}}


def test_a_new_file_in_a_new_folder(tmp_path: Path) -> None:
    file = tmp_path / "a" / "config.toml"
    change(file, {("seed",): 3, ("stop",): ["a", "b"], ("thinking",): True})
    read = config.read(file=file, environ={})
    assert (read.seed, read.stop, read.thinking) == (3, ("a", "b"), True)
    assert [p.name for p in file.parent.iterdir()] == ["config.toml"]


def test_line_ends_permissions_and_links_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    file.write_bytes(b"# one\r\ntop_k = 1\r\n")
    file.chmod(0o640)
    link.symlink_to(file)
    change(link, {("top_k",): 5})
    assert file.read_bytes() == b"# one\r\ntop_k = 5\r\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("top_k = 1\n", 0o444, "is read-only"),
        ("top_k = [\n", 0o644, "is not valid TOML"),
        ("\udcff", 0o644, "cannot be read"),
        ('presets = "no table"\n', 0o644, "is not valid TOML"),
    ],
)
def test_what_cannot_be_written_is_a_sentence_and_stays(tmp_path: Path, text: str, mode: int, says: str) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    before = file.read_bytes()
    file.chmod(mode)
    with pytest.raises(NotWritten, match=says) as caught:
        change(file, {("top_k",): 2, ("presets", "x"): {"seed": 1}})
    assert str(caught.value).count("\n") == 0
    assert file.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    with pytest.raises(NotWritten):
        change(tmp_path / "config" / "config.toml", {("top_k",): 2})


def test_a_table_of_an_odd_file_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    assert toml_file.table(file, "presets") == {}
    file.write_text("presets = 3")
    assert toml_file.table(file, "presets") == {}
    file.write_text("[presets.a]\nseed = 1")
    assert toml_file.table(file, "presets") == {"a": {"seed": 1}}


def test_the_models_recommendation_holds_where_nobody_decided() -> None:
    own = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 7, "repetition_penalty": "odd"}
    mine = config.read({"temperature": 0.1}, Path("/nowhere"), {}).under(own)
    assert (mine.temperature, mine.top_p, mine.top_k, mine.min_p, mine.repetition_penalty) == (0.1, 0.95, 20, 0, 1)
    assert mine.sources["top_p"] == config.MODEL
    assert mine.sources["temperature"] == "--temperature"
    assert config.Config().under(own | {"do_sample": False}) == config.Config()
    assert config.Config().under({}).temperature == 0


def test_every_refusal_names_the_setting_the_value_and_what_is_allowed() -> None:
    for setting in config.settings():
        wrong = {"bool": "perhaps", "int": "many", "float": "hot", "Literal": "odd"}
        word = next((w for kind, w in wrong.items() if kind in str(setting.type)), None)
        if word is None:
            continue
        with pytest.raises(config.UsageError) as caught:
            config.convert(setting, word)
        text = str(caught.value)
        assert f"`{setting.name}`" in text
        assert repr(word) in text
        assert config.takes(setting) in text


def test_a_misspelt_entry_names_the_nearest_setting(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("tempreture = 0.5\nmystery = 1\n")
    notes = config.read({}, file, {}).notes
    assert notes[0] == "config.toml: there is no setting `tempreture`. Did you mean temperature?"
    assert notes[1] == "config.toml: there is no setting `mystery`."
