"""Every option reaches what it changes, wrong values are sentences, and asking for help loads nothing."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from fake_answers import FakeEngine

from cli.main import main
from cli.registry import COMMANDS
from engine import config as settings

ROOT = Path(__file__).parents[2]
OTHER = {
    "model": "qwen3-4b", "drafter": "lookup", "cap": "4", "folders": "/models", "trust_remote_code": None,
    "temperature": "0.7", "top_p": "0.9", "top_k": "40", "min_p": "0.05", "presence_penalty": "0.5",
    "frequency_penalty": "0.25", "repetition_penalty": "1.1", "seed": "7", "max_tokens": "12", "stop": "END",
    "system": "be brief", "prefix_cache": "64", "prefix_disk": "100", "kv_bits": "8", "context": "4096",
    "override": "rope_theta=5000", "drafter_window": "512", "pin_weights": None, "thinking": None, "effort": "high",
}  # fmt: skip
"""A value other than the default for every setting."""
NAMES = [setting.name for setting in settings.settings()]


def observed(engine: FakeEngine) -> str:
    """All that the engine saw."""
    from engine import hub

    return repr((engine.loaded, engine.request, engine.messages, engine.thinking, hub.trusted()))


def flags(name: str) -> list[str]:
    option = "--models-folder" if name == "folders" else "--" + name.replace("_", "-")
    return [option] if OTHER[name] is None else [option, OTHER[name]]


@pytest.mark.parametrize("name", NAMES)
def test_o62_every_option_changes_what_the_engine_sees(engine: FakeEngine, name: str):
    assert main(["-q", "hi"]) == 0
    before = observed(engine).replace(repr(engine.loaded.pop("on_progress")), "")
    assert main(["-q", *flags(name), "hi"]) == 0
    after = observed(engine).replace(repr(engine.loaded.pop("on_progress")), "")
    assert before != after


@pytest.mark.parametrize("name", NAMES)
def test_o62_every_option_is_in_the_dump_with_its_source(
    engine: FakeEngine, name: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["--json", *flags(name), "hi"]) == 0
    dumped = json.loads(capsys.readouterr().out)["settings"]
    default = settings.Config().as_dict()
    assert dumped[name] != default[name]
    assert {k: v for k, v in dumped.items() if k != name} == {
        k: list(v) if isinstance(v, tuple) else v for k, v in default.items() if k != name
    }


def test_flags_win_over_environment_over_file(home: Path, monkeypatch: pytest.MonkeyPatch):
    file = home / "home" / "config" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("seed = 1\ntop_k = 1\nmin_p = 0.1\n")
    monkeypatch.setenv("DSPARK_SEED", "2")
    monkeypatch.setenv("DSPARK_TOP_K", "2")
    config = settings.read({"seed": "3"})
    assert (config.seed, config.top_k, config.min_p) == (3, 2, 0.1)
    assert config.sources == {"seed": "--seed", "top_k": "DSPARK_TOP_K", "min_p": str(file)}


@pytest.mark.parametrize("text", ["seed = \n", "seed = 'x'\n", "sed = 1\n", "seed = -4\n", "\x00"])
def test_a_mistake_in_the_file_is_a_note_and_never_fatal(home: Path, text: str):
    file = home / "config.toml"
    file.write_text(text)
    config = settings.read(file=file)
    assert config.seed is None
    assert len(config.notes) == 1
    assert "config.toml" in config.notes[0]


def test_tables_of_the_file_belong_to_front_ends(home: Path):
    file = home / "config.toml"
    file.write_text("[ui]\ntheme = 'light'\n")
    assert settings.read(file=file).notes == ()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--temperature", "hot"], "--temperature takes a number"),
        (["--temperature", "nan"], "between 0 and 5"),
        (["--top-p", "1.5"], "--top-p takes a number between 0 and 1, not 1.5"),
        (["--max-tokens", "0"], "--max-tokens takes a whole number from 1 up, not 0"),
        (["--kv-bits", "5"], "--kv-bits takes 0, 4, 6, 8, not 5"),
        (["--effort", "huge"], "--effort takes minimal, low, medium, high, xhigh, max, not 'huge'"),
        (["--cap", "many"], "--cap takes a whole number between 0 and 64, auto, derived, full"),
        (["--nonsense"], "unrecognized arguments"),
        (["--json", "--jsonl"], "not allowed with"),
        (["-c"], "Chats go on in the app: leave out the prompt"),
        (["--resume", "12"], "Chats go on in the app: leave out the prompt"),
    ],
)
def test_wrong_use_exits_2_with_a_sentence(
    engine: FakeEngine, argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
):
    assert main([*argv, "hi"]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err


def test_a_command_name_after_a_dash_dash_is_a_prompt(engine: FakeEngine):
    assert main(["--", "models"]) == 0
    assert engine.messages[-1]["content"] == "models"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["mdoels"], "Did you mean models?"),
        (["serv", "--port", "80"], "Did you mean serve?"),
        (["rcae"], "dspark-chat -- rcae"),
        (["--tempreture", "0.3", "hi"], "Did you mean --temperature?"),
        (["--max_tokens=3", "hi"], "Did you mean --max-tokens?"),
        (["models", "--jsn"], "Did you mean --json?"),
    ],
)
def test_what_is_nearly_a_command_or_an_option_is_refused_with_its_name(
    engine: FakeEngine, argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
):
    assert main(argv) == 2
    assert says in capsys.readouterr().err
    assert not engine.messages


@pytest.mark.parametrize("argv", [["explain"], ["translate", "-q"], ["cars?"], ["mdoels", "are", "what?"]])
def test_other_words_are_questions(engine: FakeEngine, argv: list[str]):
    assert main(argv) == 0
    assert engine.messages[-1]["content"] == " ".join(word for word in argv if word != "-q")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_of_the_table_exists(command: Any):
    assert find_spec(command.module) is not None
    assert command.help[0].islower() and not command.help.endswith(".")


def python(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(flag: str):
    code = (
        "import sys, dspark_chat\n"
        f"code = dspark_chat.main([{flag!r}])\n"
        "heavy = {'mlx', 'textual', 'transformers', 'huggingface_hub', 'numpy', 'starlette', 'rich', 'PIL'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)), code)\n"
    )
    result = python("-c", code)
    assert result.stdout.splitlines()[-1] == "HEAVY [] 0", result.stderr


def test_importing_the_public_module_loads_nothing_heavy():
    result = python(
        "-c", "import sys, dspark_chat; print(sorted({'mlx', 'engine'} & set(sys.modules)), dir(dspark_chat)[:1])"
    )
    assert result.stdout.startswith("[] "), result.stderr


def test_version_answers_fast():
    """By processor time, compared with the bare interpreter's, since the machine may be busy; best of three."""

    def best(*arguments: str) -> float:
        times = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            python(*arguments)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(times)

    assert best("dspark_chat.py", "--version") < 6 * best("-c", "pass") + 0.3


def test_public_names_resolve():
    import dspark_chat
    from engine.load import load
    from engine.types import Request

    assert dspark_chat.Request is Request
    assert dspark_chat.load is load
    assert set(dspark_chat._NAMES) <= set(dir(dspark_chat))
    with pytest.raises(AttributeError):
        dspark_chat.nothing  # noqa: B018
