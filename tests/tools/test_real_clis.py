"""The real codex, claude and gemini: each ends in the class that fits, within its time, with its tokens."""

import re

import pytest

from perdure.model.tooling import RunClass
from tests.tools import vendors
from tests.tools.api import Api
from tests.tools.conftest import KEY, Bench, account, task

TOOLS = ["codex"]


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_file_is_written(tool: str, api: Api, bench: Bench) -> None:
    url = api.url("write")
    run = await bench.run(task(tool), account(tool, url))
    assert (run.outcome, run.detail, run.exit_code, run.message) == (RunClass.OK, "", 0, "")
    assert (bench.workspace / "results.txt").read_text() == "hello"
    assert run.final_text == vendors.ANSWER
    assert run.session_id
    assert api.asked(url) == 2
    assert run.usage.tokens_in == 2 * vendors.TOKENS_IN
    assert run.usage.tokens_cached == 2 * vendors.TOKENS_CACHED
    thought = 2 * vendors.TOKENS_THOUGHT if tool == "gemini" else 0
    assert run.usage.tokens_out == 2 * vendors.TOKENS_OUT + thought
    assert KEY in api.keys
    (start,) = bench.starts
    assert re.fullmatch(r"\d+\.\d+\.\d+", start.version)
    assert start.sandbox == run.sandbox
    assert KEY not in repr(start)
    assert run.max_rss_bytes > 10_000_000
    assert run.survivors == 0


CLASSES = {
    "401": (RunClass.AUTH, None),
    "429;ra=30": (RunClass.RATE_LIMITED, None),
    "429": (RunClass.RATE_LIMITED, None),
}


@pytest.mark.parametrize("plan", CLASSES)
@pytest.mark.parametrize("tool", TOOLS)
async def test_failures_have_their_class(tool: str, plan: str, api: Api, bench: Bench) -> None:
    outcome, _ = CLASSES[plan]
    run = await bench.run(task(tool), account(tool, api.url(plan)))
    assert run.outcome is outcome, run
    assert run.message
    assert bench.took < 25
