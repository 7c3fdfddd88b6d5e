"""The rules of CONTRIBUTING.md that a tool can check."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import perdure

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "perdure"
LONGEST_FILE = 450
STATEMENT = re.compile(r"^-- name: *(\w+)(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
ONLY = re.compile(r"^-- only: (postgres|sqlite) +\S", re.MULTILINE)
MACHINE_PATH = re.compile(r"(?<![\w.~}-])/wor[k]/")


def statements(dialect: str) -> dict[str, str]:
    """Every named statement of a dialect with its text."""
    files = sorted((PACKAGE / "store" / dialect).glob("*/*.sql"))
    found = ((file, *named) for file in files for named in STATEMENT.findall(file.read_text()))
    return {name: text for file, name, text in found}


def checked_in() -> list[Path]:
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def test_imports_point_one_way() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("dialect", "twin"), [("postgres", "sqlite"), ("sqlite", "postgres")])
def test_both_dialects_have_the_same_statements(dialect: str, twin: str) -> None:
    """A statement that only one dialect needs says so: `-- only: postgres <reason>`."""
    missing = []
    for name, text in statements(dialect).items():
        only = ONLY.search(text)
        assert only is None or only[1] == dialect, f"{dialect}/{name} says it is only for {twin}"
        if only is None and name not in statements(twin):
            missing.append(name)
    assert not missing, f"{twin} lacks {missing}"


def test_files_stay_small() -> None:
    lengths = {file.relative_to(ROOT): len(file.read_text().splitlines()) for file in PACKAGE.rglob("*.py")}
    too_long = {str(file): lines for file, lines in lengths.items() if lines > LONGEST_FILE}
    assert not too_long, f"look for the noun that wants its own file: {too_long}"


def test_public_names_are_sorted_and_exist() -> None:
    assert list(perdure.__all__) == sorted(set(perdure.__all__))
    assert [name for name in perdure.__all__ if not hasattr(perdure, name)] == []


def test_pip_and_uv_install_the_same_tools() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["optional-dependencies"]["dev"] == project["dependency-groups"]["dev"]


def test_nothing_checked_in_names_a_place_on_one_machine() -> None:
    texts = {path: path.read_text(errors="ignore") for path in checked_in()}
    assert [str(path.relative_to(ROOT)) for path, text in texts.items() if MACHINE_PATH.search(text)] == []
