"""Files of jobs and runs of coding CLIs, over every kind of store."""

from dataclasses import replace
from decimal import Decimal

import pytest

from perdure.model.effects import add_tool_run
from perdure.model.errors import LeaseLost
from perdure.model.ids import uuid7
from perdure.model.jobs import Lease, completed
from perdure.model.task_records import NewFile, OutputChunk, ToolRun
from perdure.model.tooling import CliRun, RunClass, Sandbox, Usage
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell
from tests.conformance.support import event, new_job, started


def file(path: str, content: bytes) -> NewFile:
    return NewFile.of(path, content)


async def ran(store: Store, lease: Lease, **changes: object) -> ToolRun:
    """A run of this attempt."""
    now = await store.now()
    run = CliRun(
        RunClass.OK,
        "",
        "done",
        0,
        "session-1",
        "the answer",
        Usage(100, 20, 30, Decimal("0.0125")),
        sandbox=Sandbox("L1", "L0", ("landlock",)),
        seconds=1.5,
    )
    return ToolRun(
        lease.job_id,
        lease.attempt,
        "codex",
        "codex-main",
        lease.worker_id,
        now,
        now,
        (("a.txt", 2),),
        replace(run, **changes),  # type: ignore[arg-type]  # fields of CliRun
    )


async def test_inputs_are_there_before_their_job(store: Store) -> None:
    job = new_job(kind="cli.codex")
    await store.files.add_inputs(job.id, [file("b.txt", b"b"), file("a/b.txt", b""), file("same.txt", b"b")])
    await store.jobs.enqueue(job)
    found = await store.files.list_files(job.id)
    assert [(f.path, f.size, f.is_input, f.attempt) for f in found] == [
        ("a/b.txt", 0, True, 0),
        ("b.txt", 1, True, 0),
        ("same.txt", 1, True, 0),
    ]
    assert await store.files.read_file(job.id, "same.txt", is_input=True, attempt=0) == b"b"
    assert await store.files.read_file(job.id, "same.txt", is_input=False, attempt=0) is None
    assert await store.tenant("other").files.list_files(job.id) == []
    await store.files.drop_inputs(job.id)
    assert await store.files.list_files(job.id) == []


async def test_a_job_made_from_another_has_its_inputs(store: Store) -> None:
    first = new_job(kind="cli.codex")
    await store.files.add_inputs(first.id, [file("a.txt", b"a")])
    await store.jobs.enqueue(first)
    second = first._replace(id=uuid7(), origin_id=first.id, origin_kind="rerun")
    await store.jobs.enqueue(second)
    assert await store.files.read_file(second.id, "a.txt", is_input=True, attempt=0) == b"a"


async def test_outputs_belong_to_the_attempt_that_has_the_lease(store: Store) -> None:
    lease = await started(store, kind="cli.codex")
    await store.files.add_outputs(lease, [file("a.txt", b"1")])
    await store.files.add_outputs(lease, [file("a.txt", b"2")])
    with pytest.raises(LeaseLost):
        await store.files.add_outputs(lease._replace(worker_id="other"), [file("b.txt", b"3")])
    [found] = await store.files.list_files(lease.job_id)
    assert (found.path, found.attempt, found.is_input) == ("a.txt", lease.attempt, False)
    assert await store.files.read_file(lease.job_id, "a.txt", is_input=False, attempt=lease.attempt) == b"2"


async def test_a_run_is_recorded_with_an_event(store: Store) -> None:
    lease = await started(store, kind="cli.codex")
    run = await ran(store, lease)
    await store.leases.record(lease, [event("tool_run_ended")], effects=[add_tool_run(run)])
    await store.leases.record(lease, [], effects=[add_tool_run(await ran(store, lease, final_text="later"))])
    [stored] = await store.tool_runs.list_tool_runs(lease.job_id)
    assert replace(stored, started_at=run.started_at, finished_at=run.finished_at) == run
    assert await store.tenant("other").tool_runs.list_tool_runs(lease.job_id) == []


async def test_a_run_of_a_lost_lease_is_not_recorded(store: Store) -> None:
    lease = await started(store, kind="cli.codex")
    lost = lease._replace(attempt=lease.attempt + 1)
    with pytest.raises(LeaseLost):
        await store.leases.record(lost, [event("tool_run_ended")], effects=[add_tool_run(await ran(store, lost))])
    assert await store.tool_runs.list_tool_runs(lease.job_id) == []


async def test_output_is_read_from_where_one_was(store: Store) -> None:
    lease = await started(store, kind="cli.codex")
    chunks = [OutputChunk(lease.attempt, n, "stdout", b"x" * n) for n in range(1, 6)]
    await store.tool_runs.append_output(lease, chunks[:2])
    await store.tool_runs.append_output(lease, chunks[2:])
    with pytest.raises(LeaseLost):
        await store.tool_runs.append_output(lease._replace(worker_id="other"), chunks)
    assert await store.tool_runs.read_output(lease.job_id, attempt=0) == chunks
    assert await store.tool_runs.read_output(lease.job_id, attempt=lease.attempt, after=3, limit=1) == chunks[3:4]


async def test_pruning_takes_the_files_and_their_contents(file_store: Store, shell: Shell) -> None:
    store = file_store
    lease = await started(store, kind="cli.codex")
    await store.files.add_outputs(lease, [file("a.txt", b"1")])
    await store.leases.record(lease, [event("tool_run_ended")], effects=[add_tool_run(await ran(store, lease))])
    await store.tool_runs.append_output(lease, [OutputChunk(lease.attempt, 1, "stdout", b"x")])
    await store.leases.finish(lease, completed("null", 1.0))
    assert await store.retention.prune([lease.job_id]) == 1
    for table in ("job_files", "tool_runs", "tool_output"):
        assert not list(await shell.run(f"select 1 from {table}")), table
    assert await store.files.forget_contents() == 0, "they may be of a file that is being added"
    await shell.run(f"update file_contents set created_at = {shell.ago(90_000)}")
    assert await store.files.forget_contents() == 1
