"""The views `tasks`, `task_runs`, `task_files` and `concurrency_limits` have every column of the design document, by its name."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.model.effects import add_tool_run
from perdure.model.states import Status
from perdure.model.task_payload import payload_of_task
from perdure.model.tooling import Account, Captured, TaskSpec
from perdure.runtime import codec
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell
from tests.conformance.support import S, claim, event, near, new_job, outcome, run_to
from tests.conformance.test_files import file, ran

KIND = "cli.codex"


def moment(value: Any) -> datetime:
    """A time as either database gives it."""
    return value if isinstance(value, datetime) else datetime.fromtimestamp(value / 1e6, UTC)


def read(value: Any) -> Any:
    """A value, JSON that comes as text taken apart."""
    return codec.decode(value, list[Any], "it") if isinstance(value, str) else value


async def test_every_column_is_filled(file_store: Store, shell: Shell) -> None:
    store, inputs = file_store, [file("in.txt", b"input")]
    task = TaskSpec("codex", "do it", model="gpt-5", output_spec=("a.txt",))
    payload = codec.encode(payload_of_task(task, inputs), "it")
    job = new_job(kind=KIND, payload=payload, priority=8, idempotency_key="k", max_retries=2)
    await store.accounts.add_account(Account("codex-main", "codex", max_concurrency=4))
    await store.files.add_inputs(job.id, inputs)
    await store.jobs.enqueue(job)
    lease = (await claim(store, job.id)).lease
    now = await store.now()
    await store.accounts.take_account(lease, "codex", wanted=None)

    [row] = await shell.run("select * from tasks")
    task_row = dict(row)
    assert " ".join(task_row) == (
        "id tenant_id tool model status priority prompt input_files output_spec idempotency_key attempt leased_by "
        "lease_expires_at next_attempt_at error_message created_at updated_at"
    )
    assert task_row["status"] == "leased", "the CLI was not started"
    assert near(moment(task_row["lease_expires_at"]), now + timedelta(seconds=30), within=20)
    [limit] = await shell.run("select * from concurrency_limits")
    assert dict(limit) == {
        "scope": "account:codex-main",
        "max_concurrent": 4,
        "current_concurrent": 1,
        "tenant_id": "default",
    }

    await store.files.add_outputs(lease, [file("a.txt", b"12")])
    run = await ran(store, lease, stdout=Captured("out"), stderr=Captured("err"))
    await store.leases.record(lease, [event("tool_run_ended")], effects=[add_tool_run(run)])
    [row] = await shell.run("select status, leased_by from tasks")
    assert tuple(dict(row).values()) == ("running", "codex-main")
    await store.leases.finish(lease, outcome(S.RETRY))
    [row] = await shell.run("select * from tasks")
    later = dict(row)
    assert later["status"] == "queued"
    assert near(moment(later["next_attempt_at"]), now + timedelta(hours=1), within=20)
    assert (later["leased_by"], later["lease_expires_at"]) == (None, None)
    expected = {
        "id": str(job.id),
        "tenant_id": "default",
        "tool": "codex",
        "model": "gpt-5",
        "priority": 8,
        "prompt": "do it",
        "idempotency_key": "k",
        "attempt": 1,
    }
    assert {name: str(later[name]) if name == "id" else later[name] for name in expected} == expected
    assert [given["path"] for given in read(later["input_files"])] == ["in.txt"]
    assert read(later["output_spec"]) == ["a.txt"]
    assert all(near(moment(later[name]), now, within=20) for name in ("created_at", "updated_at"))

    [row] = await shell.run("select * from task_runs")
    found = dict(row)
    assert " ".join(found) == (
        "id task_id attempt status started_at finished_at exit_code stdout stderr output_files tokens_used latency_ms"
    )
    assert len(str(found["id"])) == 36
    assert str(found["task_id"]) == str(job.id)
    names = ("attempt", "status", "exit_code", "stdout", "stderr", "tokens_used", "latency_ms")
    assert [found[name] for name in names] == [1, "ok", 0, "out", "err", 120, 1500]
    assert all(near(moment(found[name]), now, within=20) for name in ("started_at", "finished_at"))
    assert "a.txt" in str(found["output_files"])

    rows = [dict(row) for row in await shell.run("select * from task_files order by path")]
    assert [" ".join(row) for row in rows] == ["id task_id path is_input content size_bytes"] * 2
    assert {str(row["task_id"]) for row in rows} == {str(job.id)}
    assert len({str(row["id"]) for row in rows}) == 2
    assert [[row[name] for name in ("path", "is_input", "content", "size_bytes")] for row in rows] == [
        ["a.txt", 0, b"12", 2],
        ["in.txt", 1, b"input", 5],
    ]


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (S.PENDING, "queued"),
        (S.RETRY, "queued"),
        (S.PARKED, "queued"),
        (S.WAITING_FOR_APPROVAL, "queued"),
        (S.RUNNING, "leased"),
        (S.WAITING, "running"),
        (S.COMPLETED, "succeeded"),
        (S.FAILED, "failed"),
        (S.CANCELLED, "canceled"),
        (S.DEADLETTER, "deadletter"),
    ],
)
async def test_a_status_is_the_word_of_the_document(file_store: Store, shell: Shell, status: Status, word: str) -> None:
    if status is S.CANCELLED:
        await file_store.jobs.cancel(await run_to(file_store, S.PENDING, kind=KIND), note='{"actor": "me"}')
    else:
        await run_to(file_store, status, kind=KIND)
    await run_to(file_store, S.COMPLETED, kind="cli")
    [row] = await shell.run("select status, error_message from tasks")  # of tasks alone
    assert dict(row) == {"status": word, "error_message": "it broke" if word in ("failed", "deadletter") else None}
