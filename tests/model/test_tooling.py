"""Tasks, accounts and paths of a workspace: what is accepted and what is refused, and by which error."""

from dataclasses import replace
from typing import Any

import pytest

from perdure.model import errors
from perdure.model.tooling import Account, Captured, TaskSpec, check_path, check_pattern, matches, reference_of
from perdure.runtime.codec import decode, encode

TASK = TaskSpec(tool="codex", prompt="Write results.txt")


def test_a_task_survives_json() -> None:
    task = replace(
        TASK,
        model="gpt-5.2-codex",
        input_files=("a.txt", "src/b.py"),
        output_spec=("results.txt", "*.patch"),
        repo="/srv/code",
        ref="origin/main~1",
        no_output_timeout=60.0,
        session="0199-ab",
        mcp_servers={"files": {"command": "server", "args": ["--root", "."], "env": {"MODE": "x"}}},
        env={"CI": "1"},
    )
    assert decode(encode(task, "the payload"), TaskSpec, "the payload") == task


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"tool": "Codex"}, errors.InvalidTask, "tool is"),
        ({"tool": "../codex"}, errors.InvalidTask, "tool is"),
        ({"prompt": ""}, errors.EmptyPrompt, "empty"),
        ({"prompt": " \n"}, errors.EmptyPrompt, "empty"),
        ({"prompt": "a\0b"}, errors.InvalidTask, "NUL"),
        ({"prompt": "a\ud800b"}, errors.InvalidTask, "surrogate"),
        ({"model": "-x"}, errors.InvalidModel, "-x"),
        ({"model": "a b"}, errors.InvalidModel, "a b"),
        ({"model": ""}, errors.InvalidModel, "''"),
        ({"input_files": ("a", "a")}, errors.InvalidTask, "twice"),
        ({"input_files": "a"}, errors.InvalidTask, "list of paths"),
        ({"input_files": ("../a",)}, errors.UnsafePath, "`..`"),
        ({"output_spec": ("/etc/passwd",)}, errors.UnsafePath, "absolute"),
        ({"output_spec": "results.txt"}, errors.InvalidOutputSpec, "list of paths"),
        ({"output_spec": ("[ab",)}, errors.InvalidOutputSpec, "not closed"),
        ({"output_spec": ("a**/b",)}, errors.InvalidOutputSpec, "stands alone"),
        ({"output_spec": ("x",) * 1001}, errors.InvalidOutputSpec, "1,001"),
        ({"timeout": 0}, errors.InvalidTask, "timeout"),
        ({"timeout": float("nan")}, errors.InvalidTask, "timeout"),
        ({"timeout": True}, errors.InvalidTask, "timeout"),
        ({"kill_after": -1}, errors.InvalidTask, "kill_after"),
        ({"no_output_timeout": 0}, errors.InvalidTask, "no_output_timeout"),
        ({"session": "-last"}, errors.InvalidTask, "session"),
        ({"ref": "main"}, errors.InvalidTask, "needs a repo"),
        ({"repo": "/r", "ref": "--upload-pack=x"}, errors.InvalidTask, "ref is"),
        ({"repo": "code"}, errors.InvalidTask, "absolute"),
        ({"mcp_servers": {"a.b": {"command": "x"}}}, errors.InvalidTask, "MCP"),
        ({"mcp_servers": {"a": {}}}, errors.InvalidTask, "needs a command"),
        ({"mcp_servers": {"a": {"command": "x", "cwd": "/"}}}, errors.InvalidTask, "unknown keys: cwd"),
        ({"mcp_servers": {"a": {"command": "x", "args": "y"}}}, errors.InvalidTask, "list of texts"),
        ({"mcp_servers": {"a": {"command": "x", "env": {"LD_PRELOAD": "y"}}}}, errors.InvalidTask, "LD_PRELOAD"),
        ({"env": {"PATH": "/tmp"}}, errors.InvalidTask, "set by perdure alone"),
        ({"env": {"ANTHROPIC_BASE_URL": "http://x"}}, errors.InvalidTask, "only be set by an account"),
        ({"env": {"https_proxy": "http://x"}}, errors.InvalidTask, "only be set by an account"),
        ({"env": {"A B": "x"}}, errors.InvalidTask, "no name of a variable"),
        ({"env": {"A": "x\0"}}, errors.InvalidTask, "NUL"),
    ],
    ids=str,
)
def test_an_invalid_task_is_refused(changes: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(errors.InvalidTask) as raised:
        replace(TASK, **changes)
    assert type(raised.value) is error
    assert says in raised.value.message


@pytest.mark.parametrize("path", ["a", "a/b.txt", "ünïcode/文件.txt", "-rf", "a..b", ".config/x", "a b", ".gitignore"])
def test_paths_inside_the_workspace(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "/a", "..", "a/../b", "a/..", "./a", "a//b", "a/", "a\\b", "a\0", "a\nb", ".git/config", "x/.GIT/hooks/y", "a" * 256,
     "a/" * 600 + "a", "\ud800", 7, None],
)  # fmt: skip
def test_paths_that_could_leave_it(path: object) -> None:
    with pytest.raises(errors.UnsafePath):
        check_path(path)
    with pytest.raises(errors.UnsafePath):
        check_pattern(path)


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("results.txt", "results.txt", True),
        ("results.txt", "x/results.txt", False),
        ("*.patch", "a.patch", True),
        ("*.patch", "x/a.patch", False),
        ("**/*.patch", "a.patch", True),
        ("**/*.patch", "x/y/a.patch", True),
        ("out/**", "out/x/y", True),
        ("out/**", "out", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[ab].txt", "a.txt", True),
        ("[!ab].txt", "a.txt", False),
        ("[!ab].txt", "/.txt", False),
        ("[0-9].txt", "5.txt", True),
        ("a.c", "abc", False),
        ("[^a]", "^", True),
    ],
)
def test_patterns(pattern: str, path: str, fits: bool) -> None:
    assert matches(check_pattern(pattern), path) is fits


def test_the_documents_account() -> None:
    account = Account(id="codex-main", tool="codex", max_concurrency=4, env={"XDG_CONFIG_HOME": "/secrets/codex"})
    assert account.group_name == "codex-main"
    assert account.enabled
    assert not account.dangerous


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"id": "-x"}, errors.InvalidAccount),
        ({"id": ""}, errors.InvalidAccount),
        ({"group_name": "a,b"}, errors.InvalidAccount),
        ({"max_concurrency": -1}, errors.InvalidAccount),
        ({"max_concurrency": True}, errors.InvalidAccount),
        ({"cred_ref": "secrets"}, errors.InvalidAccount),
        ({"env": {"LD_PRELOAD": "x"}}, errors.InvalidAccount),
        ({"env": {"A": "x\0"}}, errors.InvalidAccount),
        ({"env": {"A": "env:"}}, errors.InvalidAccount),
        ({"env": {"A": "file:relative"}}, errors.InvalidAccount),
        ({"env": {"CODEX_API_KEY": "sk-123"}}, errors.SecretByValue),
    ],
    ids=str,
)
def test_an_invalid_account_is_refused(changes: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(errors.InvalidInput) as raised:
        replace(Account(id="a", tool="codex"), **changes)
    assert type(raised.value) is error
    assert "sk-123" not in str(raised.value)


def test_references() -> None:
    assert reference_of("env:KEY") == ("env", "KEY")
    assert reference_of("file:/run/key") == ("file", "/run/key")
    assert reference_of("https://host/v1") is None
    assert Account(id="a", tool="codex", env={"CODEX_API_KEY": "env:MY_KEY"}).env["CODEX_API_KEY"] == "env:MY_KEY"


def test_a_cut_stream_says_so() -> None:
    assert Captured("abc", "", 3).text == "abc"
    assert Captured("abc", "xyz", 6).text == "abcxyz"
    assert Captured("abc", "xyz", 1006).text == "abc\n... 1,000 bytes left out ...\nxyz"
