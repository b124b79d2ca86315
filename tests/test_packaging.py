"""What a user installs: the sdist builds the wheel, the wheel is complete, and it takes no generic name for itself."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import dspark_chat

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
BUNDLED = ("engine", "server", "tui", "themes", "cli")
BUNDLE = "dspark_chat_app"
OWNERS = packages_distributions()


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_"))}
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**clean, **env}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{command}: {result.stdout[-2000:]}{result.stderr[-2000:]}"
    return result.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a release is: the sdist from the checkout, the wheel from the sdist. Needs no network."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    assert len(list(out.glob("*.tar.gz"))) == 1
    return next(out.glob("*.whl"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a clean environment that holds the wheel and nothing else."""
    home = tmp_path_factory.mktemp("clean")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    options = ["--no-deps", "--no-index", "--disable-pip-version-check", "--quiet"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, cwd=home)
    return home / "bin"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder in which every name of ours means something else, as in somebody's game project."""
    for name in BUNDLED:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the wrong package was imported')")
    return tmp_path


def test_the_wheel_puts_only_our_own_names_into_site_packages(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/", 1)[0] for name in archive.namelist()}
    assert tops == {"dspark_chat.py", BUNDLE, f"dspark_chat-{dspark_chat.__version__}.dist-info"}


def test_the_wheel_is_complete(wheel: Path):
    """Every file of the packages is in it: code, cards, themes, styles, bundled drafters."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {n.removeprefix(f"{BUNDLE}/") for n in archive.namelist() if n.startswith(f"{BUNDLE}/")}
    listed = run("git", "ls-files", *BUNDLED, cwd=ROOT).split() if (ROOT / ".git").exists() else []
    here = {name for name in listed if (ROOT / name).is_file()}
    assert here <= inside
    assert not {n for n in inside if "__pycache__" in n or n.startswith("tests")}


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_the_installed_command_runs_amid_hostile_names(installed: Path, hostile: Path, argument: str):
    for command in ([installed / "dspark-chat"], [installed / "python", "-m", "dspark_chat"]):
        said = run(*command, argument, cwd=hostile, PYTHONPATH=".")
        assert "dspark-chat" in said
    if argument == "--version":
        assert said.split() == ["dspark-chat", dspark_chat.__version__]


def test_the_checkout_runs_amid_hostile_names(hostile: Path):
    said = run(sys.executable, ROOT / "dspark_chat.py", "--version", cwd=hostile, PYTHONPATH=".")
    assert said.split() == ["dspark-chat", dspark_chat.__version__]


def test_the_bundle_is_found_by_child_processes_and_carries_its_data(installed: Path, hostile: Path):
    code = (
        "import dspark_chat, pathlib, sys\n"
        "import engine, engine.config\n"
        "from engine.hub import catalog\n"
        f"home = pathlib.Path(engine.__file__).parents[1]\nassert home.name == {BUNDLE!r}, home\n"
        "assert (home / 'engine' / 'hub' / 'download_process.py').is_file()\n"
        "print(len(list((home / 'engine' / 'hub' / 'cards').glob('*.toml'))))"
    )
    said = run(installed / "python", "-c", code, cwd=hostile)
    assert int(said) == len(list((ROOT / "engine" / "hub" / "cards").glob("*.toml")))


def test_a_foreign_engine_that_came_first_is_named(installed: Path, tmp_path: Path):
    (tmp_path / "engine.py").write_text("")
    code = "import engine, dspark_chat\ntry:\n    dspark_chat.load\nexcept ImportError as error:\n    print(error)\n"
    assert "another package named 'engine'" in run(installed / "python", "-c", code, cwd=tmp_path, PYTHONPATH=".")


def test_a_users_own_engine_stays_theirs(installed: Path, hostile: Path):
    (hostile / "engine" / "__init__.py").write_text("MINE = True")
    assert run(installed / "python", "-c", "import engine; print(engine.MINE)", cwd=hostile).strip() == "True"


def declared(*extras: str) -> set[str]:
    """Names of pyproject.toml's dependencies, without and with these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]
    return {re.split(r"[\s\[<>=!~;]", entry, maxsplit=1)[0].lower().replace("_", "-") for entry in listed}


def imported(folder: Path) -> dict[str, str]:
    """Top-level names that a folder's code imports, each with a file that does."""
    names: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            else:
                found = [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            names |= {name.split(".", 1)[0]: path.relative_to(ROOT).as_posix() for name in found}
    return names


@pytest.mark.parametrize("where", [*BUNDLED, "dspark_chat.py", "tests", "benchmarks"])
def test_whatever_is_imported_is_declared(where: str):
    """A package that only comes along with another one may stop doing so, and a fresh environment lacks it."""
    allowed = declared("vision", *(["dev"] if where in ("tests", "benchmarks") else []))
    beside = [path.stem for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    # mlx_dspark lives in an environment of its own, which benchmarks/peer.py is given.
    local = {*BUNDLED, "dspark_chat", "benchmarks", "mlx_dspark", *beside}
    missing: dict[str, str] = {}
    for name, path in imported(ROOT / where).items():
        owners = {owner.lower().replace("_", "-") for owner in OWNERS.get(name, [name])}
        if name not in sys.stdlib_module_names and name not in local and not owners & allowed:
            missing[name] = path
    assert not missing, "add to pyproject.toml, with the reason"
