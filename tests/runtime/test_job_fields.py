"""What the caller says of a job, and the job as the design document of contexts writes it."""

import json
from typing import Any
from uuid import UUID

import pytest

from perdure import App, BlockingContext, Budget, InvalidInput, JobContext
from tests.runtime.support import NOW, PATIENCE, types, working

KEYS = [
    "job_id", "state", "user_id", "requester_id", "conversation_id", "title", "description", "category", "budget", "budget_token",
    "bid_amount", "estimated_cost", "estimated_duration", "actual_cost", "total_tokens_used", "max_tokens", "created_at",
    "started_at", "completed_at", "repair_attempts", "transitions", "metadata", "user_timezone",
]  # fmt: skip
"""Of the 27 fields of the document those that it writes out; requester_id only where there is one."""
SKIPPED = ["extra_env", "http_interceptor", "tool_output_stash", "approval_context"]
"""Those that it does not."""
TALK = "01a2076d-729e-7000-8e81-46bafd75f55a"


async def test_a_job_knows_what_its_caller_said_of_it(app: App) -> None:
    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> dict[str, Any]:
        await ctx.usage(tokens=7, cost="0.5")
        if ctx.attempt == 1:
            raise OSError("once more")
        assert ctx.fields.conversation_id == UUID(TALK)
        return await ctx.snapshot()

    said: Any = {
        "user_id": "ann",
        "requester_id": "bot",
        "conversation_id": TALK,
        "title": "Report",
        "description": "On tea",
        "category": "research",
        "budget_token": "EUR",
        "bid_amount": "2.50",
        "estimated_cost": 1,
        "estimated_duration": "2h",
        "metadata": {"ticket": 7},
        "timezone": "Europe/Berlin",
        "extra_env": {"REGION": "eu"},
    }
    handle = await app.enqueue(agent, budget=Budget(tokens=100, cost="9.90"), **said)
    async with working(app):
        seen = await handle.result(PATIENCE)
        again = await (await app.jobs.rerun(handle.id)).result(PATIENCE)
    assert list(seen) == KEYS
    assert len({*KEYS, *SKIPPED}) == 27
    moves = [(move["from"], move["to"]) for move in seen["transitions"]]
    assert moves == [(None, "PENDING"), ("PENDING", "RUNNING"), ("RUNNING", "RETRY"), ("RETRY", "RUNNING")]
    fixed = {"job_id", "created_at", "started_at", "transitions"}
    shown = {key: value for key, value in seen.items() if key not in fixed}
    assert shown == {
        **{key: value for key, value in said.items() if key not in ("timezone", "extra_env")},
        "state": "RUNNING",
        "budget": "9.9",
        "bid_amount": "2.5",
        "estimated_cost": "1",
        "estimated_duration": 7200,
        "actual_cost": "0.5",
        "total_tokens_used": 7,
        "max_tokens": 100,
        "completed_at": None,
        "repair_attempts": 1,
        "user_timezone": "Europe/Berlin",
    }
    assert {key: value for key, value in again.items() if key not in fixed} == shown
    assert json.loads(json.dumps(seen)) == seen


async def test_what_is_not_said_has_a_default_and_costs_nothing(app: App) -> None:
    @app.job
    def agent(ctx: BlockingContext) -> dict[str, Any]:
        return ctx.snapshot()

    handle = await app.enqueue(agent, goal="tea")
    async with working(app):
        seen = await handle.result(PATIENCE)
    assert list(seen) == [key for key in KEYS if key != "requester_id"]
    assert (seen["title"], seen["max_tokens"], seen["budget"], seen["user_timezone"]) == ("tea", 0, None, "UTC")
    assert seen["user_id"] == (await handle.get()).tenant_id
    assert "fields_set" not in types(await handle.events())


@pytest.mark.parametrize(
    "wrong",
    [
        {"timezone": "Europe/Atlantis"},
        {"conversation_id": "seven"},
        {"metadata": [1]},
        {"metadata": {"a": object()}},
        {"user_id": ""},
        {"bid_amount": -1},
        {"estimated_duration": "soon"},
    ],
)
async def test_what_makes_no_sense_is_refused_and_nothing_is_stored(app: App, wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        await app.enqueue("agent", elsewhere=True, **wrong)
    assert not (await app.jobs.list()).items
