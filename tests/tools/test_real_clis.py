"""The real codex, claude and gemini: each run ends in the class that fits, within its time, with its tokens."""

import asyncio
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.model.errors import SessionMissing
from perdure.model.tooling import CliRun, RunClass
from tests.tools import vendors
from tests.tools.api import Api
from tests.tools.conftest import KEY, Bench, account, task

TOOLS = ("codex", "claude", "gemini")
OK, RETRYABLE, RATE_LIMITED = RunClass.OK, RunClass.RETRYABLE, RunClass.RATE_LIMITED
AUTH, TIMEOUT, MISSING = RunClass.AUTH, RunClass.TIMEOUT, RunClass.MISSING_OUTPUT

CLASSES = {
    "401": (AUTH, "credentials", "authentication_failed", "credentials"),
    "429": (RATE_LIMITED, "api", "api", "api"),
    "429;ra=30": (RATE_LIMITED, "api", "api", "api"),
    "plan": (RATE_LIMITED, "plan_window", "api", "plan_window"),
    "500": (RETRYABLE, "server", "server", "server"),
    "529": (RETRYABLE, "server", "server", "server"),
    "overloaded": (RETRYABLE, "server", "server", "server|network"),
    "empty": (RETRYABLE, "empty", "empty", "network|empty"),
}
"""What the API does, the class, and the detail for each tool."""


@pytest.fixture
def closed_port() -> Iterator[str]:
    """A URL at which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: no other process gets the port
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_file_is_written(tool: str, api: Api, bench: Bench) -> None:
    url = api.url("write")
    run = await bench.run(task(tool, prompt="--help -x $(touch bad)\nWrite results.txt"), account(tool, url))
    assert (run.outcome, run.detail, run.exit_code, run.message) == (OK, "", 0, "")
    assert (bench.workspace / "results.txt").read_text() == "hello"
    assert not (bench.workspace / "bad").exists()
    assert run.final_text == vendors.ANSWER
    assert run.session_id
    assert api.asked(url) == 2
    assert run.usage.tokens_in == 2 * vendors.TOKENS_IN
    assert run.usage.tokens_cached == 2 * vendors.TOKENS_CACHED
    thought = 2 * vendors.TOKENS_THOUGHT if tool == "gemini" else 0
    assert run.usage.tokens_out == 2 * vendors.TOKENS_OUT + thought
    assert (run.usage.cost is not None) is (tool == "claude")
    assert KEY in api.keys
    (start,) = bench.starts
    assert re.fullmatch(r"\d+\.\d+\.\d+", start.version)
    assert start.sandbox == run.sandbox
    assert start.dangerous == ()
    assert KEY not in repr(start)
    assert run.max_rss_bytes > 10_000_000
    assert run.survivors == 0


@pytest.mark.parametrize("plan", CLASSES)
@pytest.mark.parametrize("tool", TOOLS)
async def test_failures_have_their_class(tool: str, plan: str, api: Api, bench: Bench) -> None:
    outcome, *details = CLASSES[plan]
    run = await bench.run(task(tool), account(tool, api.url(plan)))
    assert run.outcome is outcome, run
    assert re.fullmatch(details[TOOLS.index(tool)], run.detail)
    assert run.message or outcome is RETRYABLE
    assert run.usage.tokens == 0 or plan in ("empty", "overloaded")  # tokens of an answer that ended early
    if tool == "gemini" and plan == "429;ra=30":
        assert run.retry_after == 30


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_refused_connection(tool: str, closed_port: str, bench: Bench) -> None:
    """codex by itself would wait for the network for ever."""
    bench.settings = replace(bench.settings, give_up_after=1.0)
    run = await bench.run(task(tool), account(tool, closed_port))
    assert (run.outcome, run.detail) == (RETRYABLE, "network"), run
    assert run.ended_early is (tool == "codex")
    assert bench.took < 50


@pytest.mark.parametrize("plan", ["hang", "stall"])
async def test_an_api_that_stops_answering(plan: str, api: Api, bench: Bench) -> None:
    """Whatever a CLI makes of it, its run is over soon after the timeout."""

    async def of(tool: str) -> CliRun:
        place = Bench(bench.folder / tool, replace(bench.settings, idle_timeout=3.0))
        place.folder.mkdir()
        return await place.run(task(tool, timeout=14.0), account(tool, api.url(plan)))

    runs = dict(zip(TOOLS, await asyncio.gather(*map(of, TOOLS)), strict=True))
    outcomes = {tool: (run.outcome, run.detail) for tool, run in runs.items()}
    expected = {
        "hang": {
            "codex": (TIMEOUT, "timeout"),
            "claude": (RETRYABLE, "server|network"),
            "gemini": (TIMEOUT, "timeout"),
        },
        "stall": {"codex": (RETRYABLE, "network"), "claude": (TIMEOUT, "timeout"), "gemini": (TIMEOUT, "timeout")},
    }[plan]
    for tool, (outcome, detail) in expected.items():
        assert outcomes[tool][0] is outcome, runs[tool]
        assert re.fullmatch(detail, outcomes[tool][1])
        assert runs[tool].seconds < 25
        assert runs[tool].survivors == 0


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_denied_tool_leaves_no_file(tool: str, api: Api, bench: Bench, tmp_path: Path) -> None:
    """The CLI says that all is well, the declared file is not there, and nothing was written outside."""
    outside = tmp_path / "outside.txt"
    command = f"touch {outside}".replace(" ", "~").replace("/", "|")
    run = await bench.run(task(tool), account(tool, api.url(f"write;cmd={command}")))
    assert (run.outcome, run.missing_files) == (MISSING, ("results.txt",)), run
    assert not outside.exists()
    assert run.permission_denials == (0 if tool == "codex" else 1)
    assert run.final_text == vendors.ANSWER


SERVER = r"""
import { createInterface } from "node:readline";
const answers = {
  initialize: ({ protocolVersion }) =>
    ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "docs", version: "1" } }),
  "tools/list": () => {
    const inputSchema = { type: "object", properties: {} };
    return { tools: [{ name: `lookup_${process.env.STAGE}`, description: "Looks up", inputSchema }] };
  },
};
createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  const result = (answers[method] ?? (() => ({})))(params);
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
});
"""
"""An MCP server with one tool, whose name has a variable of its environment in it."""


@pytest.mark.parametrize("tool", TOOLS)
async def test_the_model_is_offered_the_tools_of_a_further_mcp_server(tool: str, api: Api, bench: Bench) -> None:
    bench.settings = replace(bench.settings, task_env=("THE_STAGE",))
    bench.workspace.mkdir()
    (bench.workspace / "server.mjs").write_text(SERVER)
    server = {"command": "node", "args": ["server.mjs"], "env": {"STAGE": "env:THE_STAGE"}}
    url = api.url("write")
    run = await bench.run(
        task(tool, mcp_servers={"docs": server}), account(tool, url), {"TEST_KEY": KEY, "THE_STAGE": "stage0123"}
    )
    assert run.outcome is OK, run
    assert "lookup_stage0123" in api.last[url.rpartition("/")[2]]
    assert "stage0123" not in repr(bench.starts), "a value of the environment is in no argument"


async def test_the_environment_of_a_task_reaches_the_shell_of_its_model(api: Api, bench: Bench) -> None:
    """claude runs no command that reads a variable without asking, and gemini has no shell, where not everything is allowed."""
    command = "printf $STAGE > results.txt".replace(" ", "~")
    run = await bench.run(task("codex", env={"STAGE": "test"}), account("codex", api.url(f"write;cmd={command}")))
    assert run.outcome is OK, run
    assert (bench.workspace / "results.txt").read_text() == "test"


EARLY = {
    "codex": ("429;ra=3600", RATE_LIMITED, 2),
    "claude": ("401", AUTH, 8),
    "gemini": ("429;ra=200", RATE_LIMITED, 3),
}


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_hopeless_run_ends_at_its_own_warnings(tool: str, api: Api, bench: Bench) -> None:
    """Left alone they would sleep through an hour of limits, and repeat a refused key for minutes."""
    plan, outcome, retries = EARLY[tool]
    bench.settings = replace(bench.settings, retries=retries)
    run = await bench.run(task(tool, timeout=60.0), account(tool, api.url(plan)))
    assert run.outcome is outcome, run
    assert run.ended_early, run
    assert run.seconds < 30
    if tool == "gemini":
        assert run.retry_after == 200


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_session_is_continued_in_another_workspace(tool: str, api: Api, bench: Bench) -> None:
    sessions = bench.folder / "sessions"
    bench.settings = replace(bench.settings, sessions=sessions)
    under = account(tool, api.url("text"))
    first = await bench.run(task(tool, prompt="Remember the word xylophone", output_spec=()), under)
    assert first.outcome is OK, first
    (kept,) = (file for file in sessions.rglob("*") if file.is_file())
    assert first.session_id
    assert kept.parent == sessions / tool / under.id / first.session_id
    assert KEY not in kept.read_text()
    other = Bench(bench.folder / "other", bench.settings)
    other.folder.mkdir()
    url = api.url("text")
    again = account(tool, url, id=under.id)
    second = await other.run(task(tool, prompt="Which word?", output_spec=(), session=first.session_id), again)
    assert second.outcome is OK, second
    assert "xylophone" in api.last[url.rpartition("/")[2]]
    for session, whose in (("no-such-session", again), (first.session_id, replace(again, id="other"))):
        with pytest.raises(SessionMissing, match="this machine has no session"):
            await other.run(task(tool, session=session), whose)
