"""Files named in a message: finding them, writing the name, and sending what is in them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from engine.errors import UsageError
from tui.commands.completion import Project, candidates
from tui.conversation import mentions, project_files

NAMES = ("src/engine/loop.py", "src/engine/load.py", "README.md", "docs/two words.md", "lo_op/x.txt")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*NAMES, ".hidden/secret.txt", ".env", "node_modules/m/index.js", "build.log", "new\nline.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {path.name}")
    (tmp_path / ".gitignore").write_text("# ours\n*.log\n!keep\n/secret/deep\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_hidden_and_ignored_files_stay_out(root: Path) -> None:
    expected = [
        "README.md",
        "docs/two words.md",
        "lo_op/x.txt",
        "src/engine/load.py",
        "src/engine/loop.py",
    ]
    assert project_files.project_files(root) == expected
    git = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    if subprocess.run(["git", "init", "-q", str(root)], env=git, check=False, capture_output=True).returncode == 0:
        (root / ".gitignore").write_text("*.log\nnode_modules/\n/lo_op\n")
        assert project_files.project_files(root) == [n for n in expected if not n.startswith("lo_op")]


def test_a_few_letters_find_the_file() -> None:
    assert project_files.match("loop", NAMES) == ["src/engine/loop.py", "lo_op/x.txt"]
    assert project_files.match("LOAD", NAMES) == ["src/engine/load.py"]
    assert project_files.match("engl", NAMES)[0] in ("src/engine/load.py", "src/engine/loop.py")
    assert project_files.match("zzz", NAMES) == []
    assert len(project_files.match("", NAMES)) == len(NAMES)


@pytest.mark.parametrize(("path", "written"), [
    ("a.py", "@a.py"), ("two words.md", '@"two words.md"'), ('say "hi".md', "@'say \"hi\".md'"),
    ("it's.md", '@"it\'s.md"'),
    ("a\x1b[2J.md", None), ("both '\".md", None), ("漢字.md", "@漢字.md"), ("a\u202eb", None),
])  # fmt: skip
def test_names_are_quoted_where_they_must_be(path: str, written: str | None) -> None:
    assert project_files.mention(path) == written


@pytest.mark.parametrize(("before", "begun"), [
    ("look at @src/lo", (8, "src/lo")), ("@", (0, "")), ('@"two wo', (0, "two wo")), ("mail me@home", None),
    ("@done then", None), ("@two\\ wo", (0, "two wo")), ('@"closed" ', None), ("", None),
])  # fmt: skip
def test_a_mention_is_recognised_while_it_is_written(before: str, begun: tuple[int, str] | None) -> None:
    assert project_files.begun(before) == begun


def test_candidates_for_files_and_folders(root: Path) -> None:
    project = Project(root)
    project.look()
    found = candidates(None, "read @two", project)
    assert [(c.start, c.text, c.first) for c in found] == [(5, '@"docs/two words.md" ', True)]
    assert [c.text for c in candidates(None, "@./src/", project)] == ["@./src/engine/"]
    assert [c.text for c in candidates(None, "@./src/engine/loo", project)] == ["@./src/engine/loop.py "]
    assert [c.text for c in candidates(None, "@./.e", project)] == ["@./.env "]
    assert candidates(None, "@README.md", project) == []  # there is nothing left to choose
    assert candidates(None, "@/nowhere/at/all/", project) == []


def test_named_files_are_sent_in_fences(root: Path) -> None:
    (root / "fence.md").write_text("```\ninside\n```\n\x1b[2Jend\r\n")
    sent = mentions.expand('compare @README.md, @"docs/two words.md" and @README.md (see @fence.md)')
    assert sent.startswith("compare `README.md`, `docs/two words.md` and `README.md` (see `fence.md`)")
    assert sent.count("content of README.md") == 1
    assert "README.md:\n```md\ncontent of README.md\n```" in sent
    assert mentions.expand("@fence.md").endswith("\n````md\n```\ninside\n```\nend\n````")
    for text in ("@nothing.py", "a@README.md", "@", "@docs", "@/dev/null", "plain"):
        assert mentions.expand(text) == text


def test_files_that_cannot_be_sent_are_refused_by_name(root: Path) -> None:
    (root / "big.txt").write_text("x" * (mentions.MAX_BYTES + 1))
    (root / "binary.bin").write_bytes(b"\0\1\2")
    (root / "latin.txt").write_bytes("Grün".encode("latin-1"))
    (root / "cat.png").write_bytes(b"\x89PNG")
    for name, says in (("big.txt", "256 KB go into a message"), ("binary.bin", "binary.bin is no text")):
        with pytest.raises(UsageError, match=says):
            mentions.expand(f"read @{name}")
    assert "Grün" in mentions.expand("@latin.txt")
    assert mentions.expand("@cat.png") == "@cat.png"
