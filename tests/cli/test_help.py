"""Help pages, names and aliases: what a newcomer meets first."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.cli.help import first_sentence
from perdure.cli.main import root
from tests.cli.conftest import Perdure, program


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command of the tree with its path."""
    command = command or root()
    if path:
        yield path, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from commands(command.get_command(None, name), (*path, name))


PATHS = [path for path, _ in commands()]


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_help_page_says_what_it_does_and_shows_an_example(perdure: Perdure, path: tuple[str, ...]) -> None:
    page = perdure(*path, "--help").out
    example = page.partition("Example")[2]
    assert f"perdure {' '.join(path)}" in example or f"perdure {path[0]} " in example
    assert page.startswith(f"Usage: perdure {' '.join(path)} ")
    assert max(map(len, page.splitlines())) <= 120


def test_every_option_has_a_help_text() -> None:
    silent = [(path, p.name) for path, command in commands() for p in command.params if not getattr(p, "help", None)]
    assert silent == []


COMMANDS = [
    "dev",
    "demo",
    "jobs",
    "approvals",
    "worker",
    "db",
    "config",
    "fsck",
    "doctor",
    "chaos",
    "completion",
    "version",
]
OPTIONS = ["--url", "--db", "--tenant", "--app", "--output", "--json", "--fields", "--quiet", "--verbose", "--color"]


def test_the_commands_and_options_are_there(perdure: Perdure) -> None:
    page = perdure("--help").out
    assert [name for name in COMMANDS if f"\n  {name} " not in page] == []
    assert [option for option in [*OPTIONS, "--time-format", "--no-input", "--yes"] if option not in page] == []
    assert "10 database unreachable" in " ".join(page.split())


@pytest.mark.parametrize("args", [(), ("jobs",), ("worker",)])
def test_a_group_alone_prints_its_help(perdure: Perdure, args: tuple[str, ...]) -> None:
    assert perdure(*args).out == perdure(*args, "--help").out == perdure(*args, "-h").out


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("job", "list"), ("jobs", "ls")),
        (("approval", "list"), ("approvals", "ls")),
        (("workers", "list"), ("worker", "status")),
        (("config", "list"), ("config", "ls")),
    ],
)
def test_singular_nouns_and_aliases(perdure: Perdure, typed: tuple[str, ...], meant: tuple[str, ...]) -> None:
    typed_done, meant_done = perdure(*typed), perdure(*meant)
    assert typed_done.out == meant_done.out
    assert "list" not in perdure("jobs", "--help").out.split()


def test_show_is_get(perdure: Perdure) -> None:
    id = perdure.start("naps")
    assert perdure("job", "show", id, "--json").out == perdure("jobs", "get", id, "--json").out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("jbos",), "there is no command 'perdure jbos'; did you mean 'jobs'?"),
        (("jobs", "cancle"), "did you mean 'cancel'?"),
        (("jobs", "ls", "--stauts", "x"), "no such option: --stauts"),
        (("jobs", "events"), "missing argument"),
        (("jobs", "events", "a", "b"), "got unexpected extra argument"),
        (("jobs", "ls", "-o", "xml"), "'xml' is not one of table, wide, json, jsonl, id, none"),
        (("--color", "red", "jobs", "ls"), "'red' is not one of auto, always, never"),
        (("jobs", "ls", "--limit", "0"), "'--limit': it must be at least 1\n"),
        (("jobs", "ls", "--limit", "many"), "'--limit': it must be a whole number\n"),
        (("jobs", "count", "--by", "age"), "'--by': 'age' is not one of 'status', 'kind', 'queue'\n"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(perdure: Perdure, args: tuple[str, ...], says: str) -> None:
    done = perdure(*args, code=2)
    assert says in done.err
    assert done.err.startswith("error: ")
    assert done.err.rstrip().endswith("[perdure help usage]")
    assert "--help" in done.err
    assert done.out == ""


def test_global_options_stand_before_or_after_the_command(perdure: Perdure) -> None:
    perdure.start("naps")
    after = perdure("jobs", "ls", "-o", "id").out
    assert perdure("-o", "id", "jobs", "ls").out == after
    assert perdure("-oid", "jobs", "ls").out == after
    assert perdure("--output=id", "-q", "jobs", "ls").out == after
    assert perdure("--json", "jobs", "ls", "-o", "id").json["items"]
    assert perdure("-o", "json", "jobs", "ls", "-o", "id").out == after


def test_help_loads_neither_pydantic_nor_a_driver() -> None:
    code = (
        "import sys; from perdure.cli.main import run; run(['--help']); run(['jobs', 'ls', '--help']);"
        "sys.exit(any(m in sys.modules for m in ('pydantic', 'asyncpg', 'sqlite3', 'structlog', 'rich', 'perdure.app')))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_help_as_json(perdure: Perdure) -> None:
    page = perdure("help", "jobs", "ls", "-o", "json").json
    assert page["command"] == "perdure jobs ls"
    assert page["help"].rstrip() == perdure("help", "jobs", "ls").out.rstrip()


def test_version(perdure: Perdure) -> None:
    import perdure as package

    assert perdure("version").out.startswith(f"perdure {package.__version__} (Python 3.")
    assert perdure("--version").out == perdure("version").out
    assert perdure("version", "--json").json["version"] == package.__version__
    assert perdure("version", "-o", "id").out.strip() == package.__version__


def test_the_program_itself() -> None:
    done = program("version")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("perdure ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(perdure: Perdure, shell: str) -> None:
    assert "_PERDURE_COMPLETE" in perdure("completion", shell).out


def test_completion_of_an_unknown_shell(perdure: Perdure) -> None:
    assert "known: bash, zsh, fish" in perdure("completion", "tcsh", code=2).err


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Do it. Then rest.", "Do it"),
        ("Do it: all of it.", "Do it"),
        ("See file.txt now.", "See file.txt now"),
        (None, ""),
    ],
)
def test_first_sentence(text: str | None, first: str) -> None:
    assert first_sentence(text) == first


def test_a_hidden_command_is_not_listed(perdure: Perdure) -> None:
    listed = perdure("worker", "--help").out
    assert "  status  " in listed
    assert "  ls  " not in listed
