"""Command lines, the reading of events, and what texts and statuses mean."""

import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.model.errors import ConfigError, PromptTooLarge, ToolMissing, ToolUnsupported, UnknownTool
from perdure.model.tooling import Account, RunClass, TaskSpec
from perdure.tools import ADAPTERS, CliSettings, check_task, described_tools
from perdure.tools.adapters.base import Ended, Invocation, Request
from perdure.tools.verdicts import by_status, by_text, delay_in
from tests.tools.conftest import Bench, account

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def command(tool: str, env: dict[str, str] | None = None, dangerous: bool = False, **changes: Any) -> Invocation:
    if "task_env" in changes:
        changes["env"] = changes.pop("task_env")
    task = TaskSpec(**{"tool": tool, "prompt": "--help THE PROMPT", "model": "m-1", **changes})
    request = Request(
        task=task,
        account=Account(id="a", tool=tool),
        env=env or {},
        workspace=Path("/w"),
        home=Path("/h"),
        tmp=Path("/h/tmp"),
        settings=CliSettings(),
        dangerous=dangerous,
        task_env=task.env,
        mcp_servers=task.mcp_servers,
    )
    return ADAPTERS[tool].command(request)


@pytest.mark.parametrize("tool", ADAPTERS)
def test_the_prompt_is_in_no_argument(tool: str) -> None:
    call = command(tool)
    assert call.stdin == "--help THE PROMPT"
    assert "THE PROMPT" not in repr((call.args, call.env, call.files))
    assert "m-1" in call.args
    assert not any("danger" in arg or "yolo" in arg or "bypass" in arg for arg in call.args)


@pytest.mark.parametrize(
    ("tool", "flag"),
    [
        ("codex", "--dangerously-bypass-approvals-and-sandbox"),
        ("claude", "--dangerously-skip-permissions"),
        ("gemini", "yolo"),
    ],
)
def test_dangerous_flags(tool: str, flag: str) -> None:
    assert flag in command(tool, dangerous=True).args


@pytest.mark.parametrize("tool", ADAPTERS)
def test_keys_are_in_no_argument(tool: str) -> None:
    env = dict.fromkeys(("CODEX_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "sk-secret-1")
    call = command(tool, env)
    assert "sk-secret-1" not in repr((call.args, call.files))
    assert "sk-secret-1" in call.env.values()


def test_what_codex_gets_as_toml_is_toml() -> None:
    server = {"command": 'a"b\\', "args": ["é", "\x7f\n"], "env": {"A_B": "x"}}
    call = command("codex", {"OPENAI_BASE_URL": 'http://h/"x'}, mcp_servers={"a-b": server}, task_env={"STAGE": 'a"\n'})
    config = tomllib.loads(call.files[".codex/config.toml"])
    assert config["mcp_servers"] == {"a-b": {**server, "required": True}}
    assert config["shell_environment_policy"] == {"set": {"STAGE": 'a"\n'}}
    args = call.args
    options = [
        tomllib.loads(args[n + 1].replace("model_providers.account=", "x=")) for n, a in enumerate(args) if a == "-c"
    ]
    (provider,) = (option["x"] for option in options if "x" in option)
    assert provider["base_url"] == 'http://h/"x'


def test_tasks_are_checked_before_they_are_enqueued() -> None:
    with pytest.raises(UnknownTool) as raised:
        check_task(TaskSpec(tool="qwen", prompt="x"))
    assert raised.value.hint == "tools: codex, claude, gemini"
    check_task(TaskSpec(tool="codex", prompt="x" * 1_048_576))
    with pytest.raises(PromptTooLarge, match="1,048,577 bytes; codex reads 1,048,576"):
        check_task(TaskSpec(tool="codex", prompt="x" * 1_048_577))


KEYS = ["type", "item", "error", "message", "usage", "result", "stats", "text", "rate_limit_info", "resetsAt", "status"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)
TYPES = ["thread.started", "item.completed", "turn.completed", "turn.failed", "error", "assistant", "rate_limit_event", "system",
         "result", "init", "message", "tool_result"]  # fmt: skip


@pytest.mark.parametrize("tool", ADAPTERS)
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40, deadline=None)
@given(events=st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5), max_size=6), kinds=st.data())
def test_a_reader_takes_any_event(tool: str, events: list[dict[str, Any]], kinds: st.DataObject) -> None:
    reader = ADAPTERS[tool].reader()
    for event in events:
        reader.line("stdout", json.dumps({**event, "type": kinds.draw(st.sampled_from(TYPES))}), 0.0)
        reader.hopeless(1.0, 60.0)
    reader.line("stdout", "{" * 5000, 0.0)
    for exit_code in (0, 1, 2, 173, -9):
        for stopped in (False, True):
            assert isinstance(reader.verdict(Ended(exit_code, stopped, "")).outcome, RunClass)


@pytest.mark.parametrize(
    ("text", "outcome", "detail", "retry_after"),
    [
        ("You've hit your usage limit. Try again at 1:51 PM.", "rate_limited", "plan_window", 6660.0),
        ("You've hit your usage limit, try again at Nov 24th, 2026 12:00 PM.", "rate_limited", "plan_window", 86400.0),
        ("You have exhausted your daily quota on this model.", "rate_limited", "plan_window", None),
        ("Quota exceeded. Check your plan and billing details.", "fatal", "billing", None),
        ("Credit balance is too low", "fatal", "billing", None),
        ("unexpected status 401 Unauthorized: Incorrect API key provided", "auth", "credentials", None),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limited", "api", None),
        ("rate limit exceeded: Please try again in 2.5s.", "rate_limited", "api", 2.5),
        ("rate limit reached, try again in 1 minute and 5 seconds", "rate_limited", "api", 65.0),
        ("You exceeded your current quota.\nSuggested retry after 30s.", "rate_limited", "api", 30.0),
        ("Codex ran out of ro" + "om in the model's context window.", "fatal", "too_long", None),
        ("The model `x` does not exist or you do not have access to it.", "fatal", "model", None),
        ("stopped: max_output_tokens", "fatal", "max_output", None),
        ("Claude Code is unable to respond: it violates our Usage Policy", "fatal", "refusal", None),
        ("We're currently experiencing high demand", "retryable", "server", None),
        ("unexpected status 403 Forbidden: no", "auth", "403", None),
        ("unexpected status 408 Request Timeout", "retryable", "408", None),
        ("unexpected status 422 Unprocessable", "fatal", "422", None),
        ("API Error: 503 nothing here", "retryable", "503", None),
        ("stream disconnected before completion: x", "retryable", "network", None),
        ("terminated", "retryable", "network", None),
    ],
)
def test_what_texts_mean(text: str, outcome: str, detail: str, retry_after: float | None) -> None:
    verdict = by_text(text, NOW)
    assert verdict is not None
    assert (verdict.outcome, verdict.detail, verdict.retry_after) == (outcome, detail, retry_after)
    assert verdict.message == text.split("\n", maxsplit=1)[0]


def test_texts_without_a_meaning() -> None:
    for text in ("", "something else", "predetermined", "try again at 99:99", "unexpected status 200"):
        assert by_text(text, NOW) is None
    assert delay_in("try again in a while") is None
    assert by_status(200) is None


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({}, "program is missing"),
        ({"program": "-x"}, "program is a name"),
        ({"program": "a; b"}, "program is a name"),
        ({"program": "x", "args": ["{secret}"]}, "unknown placeholder"),
        ({"program": "x", "args": ["{model.x}"]}, "unknown placeholder"),
        ({"program": "x", "args": ["{model!r}"]}, "unknown placeholder"),
        ({"program": "x", "args": ["{"]}, "write {{"),
        ({"program": "x", "args": "y"}, "args must be of type list"),
        ({"program": "x", "success": ["0"]}, "list of type int"),
        ({"program": "x", "shell": True}, "unknown keys: shell"),
        ({"program": "x", "output": "xml"}, "output is one of text"),
        ({"program": "x", "error": "("}, "no pattern"),
        ({"program": "x", "versions": ["1"]}, "versions are two"),
        ({"program": "x", "stdin": False}, "prompt_file"),
        ({"program": "x", "prompt_limit": 0}, "at least 1"),
        ("x", "must be a table"),
    ],
    ids=str,
)
def test_a_table_that_describes_no_tool(table: Any, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        described_tools({"mine": table})
    assert raised.value.message.startswith("[cli.tools.mine]: ")
    assert says in raised.value.message


def test_names_of_described_tools() -> None:
    for name in ("Mine", "a.b", "codex"):
        with pytest.raises(ConfigError):
            described_tools({name: {"program": "x"}})


async def test_a_described_tool_gets_what_its_table_says(tmp_path: Path) -> None:
    program = tmp_path / "mine"
    program.write_text('#!/bin/sh\ncat "$2"; shift 2; echo " $* K=$K X=$X"; cat\n')
    program.chmod(0o755)
    table = {
        "program": "mine",
        "args": ["--file", "{prompt_file}", "{{x}}", "--in={workspace}"],
        "model_args": ["--model", "{model}"],
        "env": ["K"],
    }
    bench = Bench(
        tmp_path, CliSettings(level="L0", path=f"{tmp_path}:/usr/bin:/bin"), adapters=described_tools({"mine": table})
    )
    spec = TaskSpec(tool="mine", prompt="$(id) prompt", model="m")
    run = await bench.run(spec, Account(id="a", tool="mine", env={"K": "1", "X": "2"}))
    assert run.final_text == f"$(id) prompt {{x}} --in={bench.workspace} --model m K=1 X=\n$(id) prompt"


async def test_an_answer_that_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\necho '[API Error: 401 Incorrect API key]'\n")
    program.chmod(0o755)
    tools = described_tools({"mine": {"program": str(program), "error": r"^\[API Error"}})
    bench = Bench(tmp_path, CliSettings(level="L0"), adapters=tools)
    run = await bench.run(TaskSpec(tool="mine", prompt="p"), Account(id="a", tool="mine"))
    assert (run.outcome, run.detail) == (RunClass.AUTH, "credentials")


class TestPrograms:
    """Programs that are missing or too old."""

    def fake(self, folder: Path, text: str) -> Bench:
        (folder / "codex").write_text(text)
        (folder / "codex").chmod(0o755)
        return Bench(folder, CliSettings(path=f"{folder}:/usr/bin:/bin"))

    async def test_a_program_that_is_not_installed(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path, CliSettings(path="/usr/nowhere"))
        with pytest.raises(ToolMissing, match="codex is not installed on this machine") as raised:
            await bench.run(TaskSpec(tool="codex", prompt="p"), account("codex", "http://h"))
        assert raised.value.hint == "install it: npm install -g @openai/codex"

    async def test_a_version_that_is_too_old(self, tmp_path: Path) -> None:
        bench = self.fake(tmp_path, "#!/bin/sh\necho codex-cli 0.12.0\n")
        with pytest.raises(ToolUnsupported, match=r"codex 0\.12\.0; supported are 0\.130\.0 and newer, below 1\.0\.0"):
            await bench.run(TaskSpec(tool="codex", prompt="p"), account("codex", "http://h"))

    async def test_a_program_that_says_no_version(self, tmp_path: Path) -> None:
        bench = self.fake(tmp_path, "#!/bin/sh\necho hello\n")
        with pytest.raises(ToolUnsupported, match="says no version: 'hello"):
            await bench.run(TaskSpec(tool="codex", prompt="p"), account("codex", "http://h"))

    async def test_a_script_without_its_interpreter(self, tmp_path: Path) -> None:
        bench = self.fake(tmp_path, "#!/usr/bin/env no-such-interpreter\n")
        with pytest.raises(ToolMissing, match="needs no-such-interpreter"):
            await bench.run(TaskSpec(tool="codex", prompt="p"), account("codex", "http://h"))
