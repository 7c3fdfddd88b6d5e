"""Contents that are too large for the database: where they are, what happens to them, and what happens without them."""

import io
import os
import shutil
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from perdure.model.effects import add_tool_run
from perdure.model.errors import BlobDirUnusable, ContentDamaged, ContentMissing, FilesTooLarge
from perdure.model.jobs import completed
from perdure.model.task_records import OutputChunk, ToolRun
from perdure.model.tooling import CliRun, RunClass
from perdure.runtime.client.client import Client
from perdure.store.blobs.directory import BlobDirectory
from perdure.store.open import open_store
from perdure.store.protocol import Store
from perdure.store.protocol.blobs import ContentSettings
from tests.conformance.sql_shell import Shell, open_shell
from tests.conformance.support import event, new_job, started

LARGE = bytes(range(256)) * 40
SETTINGS = {"inline": 1000, "limit": 50_000}


class Source(io.BytesIO):
    """An open file that gives a few bytes at a time."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 777))


@pytest.fixture
async def store(store_url: str, tmp_path: Path) -> AsyncIterator[Store]:
    """A store with few bytes in rows."""
    store = await open_store(store_url, contents=ContentSettings(tmp_path / "blobs", **SETTINGS))
    await store.schema.migrate()
    yield store
    await store.close()


def blobs(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def make_old(folder: Path) -> None:
    for path in blobs(folder):
        os.utime(path, (time.time() - 90_000,) * 2)


async def test_a_large_content_is_a_blob_and_a_small_one_is_not(store: Store, tmp_path: Path) -> None:
    lease = await started(store, kind="cli.codex")
    small = await store.files.keep("small", Source(b"x" * 1000))
    large = await store.files.keep("large", Source(LARGE))
    again = await store.files.keep("again", Source(LARGE))
    assert (small.content, large.content, large.size) == (b"x" * 1000, None, len(LARGE))
    assert [path.name for path in blobs(tmp_path / "blobs")] == [large.hash]
    await store.files.add_outputs(lease, [small, large, again])
    for path, content in {"small": b"x" * 1000, "large": LARGE, "again": LARGE}.items():
        assert await store.files.read_file(lease.job_id, path, is_input=False, attempt=lease.attempt) == content
    assert {f.path: f.size for f in await store.files.list_files(lease.job_id)} == {
        "small": 1000,
        "large": len(LARGE),
        "again": len(LARGE),
    }
    [blob] = blobs(tmp_path / "blobs")
    assert blob.stat().st_mode & 0o777 == 0o600
    assert all(
        folder.stat().st_mode & 0o777 == 0o700 for folder in blob.parents if folder.is_relative_to(tmp_path / "blobs")
    )


async def test_what_is_too_large_leaves_nothing(store: Store, tmp_path: Path) -> None:
    with pytest.raises(FilesTooLarge, match="'a' has more than 50,000 bytes"):
        await store.files.keep("a", Source(b"x" * 50_001))
    with pytest.raises(FilesTooLarge, match="more than 10 bytes"):
        await store.files.keep("a", Source(b"x" * 11), most=10)
    assert (await store.files.keep("a", Source(b"x" * 10), most=10)).size == 10
    assert (await store.files.keep("a", Source(b"x" * 50_000))).size == 50_000
    assert len(blobs(tmp_path / "blobs")) == 1


async def test_a_blob_that_is_gone_or_changed(store: Store, tmp_path: Path) -> None:
    job = new_job(kind="cli.codex")
    await store.files.add_inputs(job.id, [await store.files.keep("a", Source(LARGE))])
    await store.jobs.enqueue(job)
    [blob] = blobs(tmp_path / "blobs")
    blob.write_bytes(LARGE[:-1] + b"?")
    with pytest.raises(ContentDamaged, match=str(blob)):
        await store.files.read_file(job.id, "a", is_input=True, attempt=0)
    blob.unlink()
    with pytest.raises(ContentMissing, match=f"{socket.gethostname()}: {blob}: No such file"):
        await store.files.read_file(job.id, "a", is_input=True, attempt=0)
    await store.files.keep("b", Source(LARGE))
    assert await store.files.read_file(job.id, "a", is_input=True, attempt=0) == LARGE, "the same content heals it"


async def test_a_directory_that_cannot_be_written_to(store: Store, tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("a file")
    with pytest.raises(BlobDirUnusable, match=rf"{tmp_path}/blobs.* on {socket.gethostname()}: "):
        await store.files.keep("a", Source(LARGE))


async def test_an_inline_content_that_changed(file_store: Store, file_store_url: str) -> None:
    lease = await started(file_store, kind="cli.codex")
    await file_store.files.add_outputs(lease, [await file_store.files.keep("a", Source(b"1"))])
    async with open_shell(file_store_url) as shell:
        await shell.run("update file_contents set content = " + ("'2'::bytea" if shell.postgres else "x'32'"))
    with pytest.raises(ContentDamaged, match="'a'"):
        await file_store.files.read_file(lease.job_id, "a", is_input=False, attempt=lease.attempt)


async def test_blobs_go_a_day_after_the_last_file(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    lease = await started(store, kind="cli.codex")
    await store.files.add_outputs(lease, [await store.files.keep("used", Source(LARGE))])
    await store.files.keep("never committed", Source(LARGE + b"1"))
    (folder / "x").mkdir()
    (blobs(folder)[0].parents[1] / "incoming" / "0123").write_bytes(b"a process died while it wrote this")
    assert len(blobs(folder)) == 3
    await store.files.forget_contents()
    assert len(blobs(folder)) == 3, "they may be about to be committed"
    make_old(folder)
    await store.files.forget_contents()
    assert await store.files.read_file(lease.job_id, "used", is_input=False, attempt=lease.attempt) == LARGE
    assert len(blobs(folder)) == 1
    await store.tenant("other").files.forget_contents()
    assert len(blobs(folder)) == 1


async def test_prune_takes_the_blobs_of_jobs(file_store: Store, file_store_url: str, tmp_path: Path) -> None:
    store = await open_store(file_store_url, contents=ContentSettings(tmp_path / "blobs", **SETTINGS))
    lease = await started(store, kind="cli.codex")
    await store.files.add_outputs(lease, [await store.files.keep("a", Source(LARGE))])
    await store.leases.finish(lease, completed("null", 1.0))
    assert await store.retention.prune([lease.job_id]) == 1
    async with open_shell(file_store_url) as shell:
        await shell.run(f"update file_contents set created_at = {shell.ago(90_000)}")
    make_old(tmp_path / "blobs")
    assert await store.files.forget_contents() == 1
    assert blobs(tmp_path / "blobs") == []
    await store.close()


def test_a_blob_that_is_added_while_it_is_removed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = BlobDirectory(tmp_path)
    hash = directory.add([LARGE])
    make_old(tmp_path)
    before = time.time() - 1000
    real: Callable[..., Path] = Path.rename

    def adding_first(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", real)
        assert directory.add([LARGE]) == hash
        return real(path, target)

    monkeypatch.setattr(Path, "rename", adding_first)
    assert not directory.remove(hash, before)
    assert b"".join(directory.read(hash)) == LARGE
    make_old(tmp_path)
    shutil.rmtree(tmp_path / "incoming")  # as after a restore of the blobs alone
    assert directory.remove(hash, before)
    assert not directory.holds(hash)
    assert not directory.remove(hash, before), "another process was faster"


def test_a_blob_in_the_hands_of_a_process_that_was_killed_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = BlobDirectory(tmp_path)
    hash = directory.add([LARGE])
    (tmp_path / hash[:2] / hash).rename(tmp_path / "incoming" / f"{hash}.0123")
    assert list(directory.old(0)) == []
    assert not directory.holds(hash), "the process may still live"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 100)
    assert list(directory.old(0)) == []
    assert b"".join(directory.read(hash)) == LARGE


async def test_a_directory_that_cannot_be_read_stops_the_pruning_with_its_name(store: Store, tmp_path: Path) -> None:
    kept = await store.files.keep("a", Source(LARGE))
    [blob] = blobs(tmp_path / "blobs")
    folder = blob.parents[1]
    shutil.rmtree(folder)
    folder.write_text("a file")
    with pytest.raises(BlobDirUnusable, match=str(folder)):
        await store.files.forget_contents()
    assert kept.content is None


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield LARGE
        raise ValueError("the reader failed")

    with pytest.raises(ValueError, match="the reader failed"):
        BlobDirectory(tmp_path).add(pieces())
    assert blobs(tmp_path) == []


async def test_databases_and_tenants_have_folders_of_their_own(tmp_path: Path) -> None:
    """One removes only its own, also where they have one root."""
    folder = tmp_path / "blobs"
    stores = [
        await open_store(f"sqlite:///{tmp_path}/{name}.db", contents=ContentSettings(folder, **SETTINGS))
        for name in "ab"
    ]
    for store in stores:
        await store.schema.migrate()
        for tenant in ("Acme", "acme", "../x"):
            await store.tenant(tenant).files.keep("a", Source(LARGE))
    assert len(blobs(folder)) == 6
    make_old(folder)
    await stores[0].tenant("../x").files.forget_contents()
    assert len(blobs(folder)) == 5
    for store in stores:
        await store.close()


async def test_where_blobs_are_by_default(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for url, folder in (
        (f"sqlite:///{tmp_path}/a.db", tmp_path / "a.db-blobs"),
        (postgres_url, tmp_path / "data" / "perdure" / "blobs"),
    ):
        store = await open_store(url, contents=ContentSettings(None, **SETTINGS))
        await store.schema.migrate()
        await store.files.keep("a", Source(LARGE))
        await store.close()
        assert len(blobs(folder)) == 1


async def test_a_backup_has_the_blobs_of_the_database(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/a.db", contents=ContentSettings(None, **SETTINGS))
    await store.schema.migrate()
    job, lost = new_job(kind="cli.codex"), new_job(kind="cli.codex")
    await store.files.add_inputs(job.id, [await store.files.keep("a", Source(LARGE))])
    await store.files.keep("no row refers to it", Source(LARGE + b"1"))
    await store.files.add_inputs(lost.id, [gone := await store.files.keep("b", Source(LARGE + b"2"))])
    [blob] = tmp_path.rglob(gone.hash)
    blob.unlink()
    await store.schema.backup(f"{tmp_path}/copy.db", overwrite=False)
    await store.schema.backup(f"{tmp_path}/copy.db", overwrite=True)
    await store.close()
    assert len(blobs(tmp_path / "copy.db-blobs")) == 1
    copy = await open_store(f"sqlite:///{tmp_path}/copy.db")
    assert await copy.files.read_file(job.id, "a", is_input=True, attempt=0) == LARGE
    with pytest.raises(ContentMissing):
        await copy.files.read_file(lost.id, "b", is_input=True, attempt=0)
    await copy.close()


async def test_fsck_looks_for_blobs_and_reads_them_if_it_is_asked(file_store_url: str, tmp_path: Path) -> None:
    store = await open_store(file_store_url, contents=ContentSettings(tmp_path / "blobs", **SETTINGS))
    await store.schema.migrate()
    jobs = [new_job(kind="cli.codex") for _ in range(3)]
    for number, job in enumerate(jobs):
        await store.files.add_inputs(
            job.id, [await store.files.keep("a", Source(LARGE[number:])), await store.files.keep("b", Source(b"1"))]
        )
        await store.jobs.enqueue(job)

    async def faults(*, deep: bool = False) -> set[tuple[str, UUID | None]]:
        page = await store.checks.check(deep=deep)
        return {(finding.code, finding.job_id) for finding in page.findings}

    assert await faults() == await faults(deep=True) == set()
    places = {blob.name: blob for blob in blobs(tmp_path / "blobs")}
    a, b = [next(f.hash for f in await store.files.list_files(job.id) if f.path == "a") for job in jobs[:2]]
    places[a].unlink()
    places[b].write_bytes(b"?")
    assert await faults() == {("blob-missing", jobs[0].id)}
    assert await faults(deep=True) == {("blob-missing", jobs[0].id), ("blob-damaged", jobs[1].id)}
    async with open_shell(file_store_url) as shell:
        await shell.run(
            "update file_contents set content = "
            + ("'2'::bytea" if shell.postgres else "x'32'")
            + " where size_bytes = 1"
        )
    assert {code for code, _ in await faults()} == {"blob-missing"}
    assert ("blob-damaged", jobs[2].id) in await faults(deep=True)
    assert {f.code async for f in Client(store).database.fsck(fix=True)} == {"blob-missing"}
    await store.close()


async def test_inputs_of_a_job_that_never_came_go_after_a_day(file_store: Store, shell: Shell) -> None:
    """The process that stored them died before it stored the job."""
    stray, kept = new_job(kind="cli.codex"), new_job(kind="cli.codex")
    await file_store.files.add_inputs(stray.id, [await file_store.files.keep("a", Source(b"1"))])
    await file_store.files.add_inputs(kept.id, [await file_store.files.keep("a", Source(b"2"))])
    await file_store.jobs.enqueue(kept)
    await file_store.files.forget_contents()
    assert len(await file_store.files.list_files(stray.id)) == 1, "its job may be about to be stored"
    assert (await file_store.checks.check()).findings == ()
    for days, faults in ((1.5, []), (3, ["orphan"])):
        for table in ("job_files", "file_contents"):
            await shell.run(f"update {table} set created_at = {shell.ago(days * 86_400)}")
        assert [finding.code for finding in (await file_store.checks.check()).findings] == faults
    assert await file_store.files.forget_contents() == 1
    assert await file_store.files.list_files(stray.id) == []
    assert await file_store.files.read_file(kept.id, "a", is_input=True, attempt=0) == b"2"
    assert (await file_store.checks.check()).findings == ()


async def test_what_pruning_keeps_of_a_task_with_its_log(store: Store, tmp_path: Path) -> None:
    lease = await started(store, kind="cli.codex")
    await store.files.add_outputs(lease, [await store.files.keep("a", Source(LARGE))])
    await store.tool_runs.append_output(lease, [OutputChunk(lease.attempt, 1, "stdout", b"x")])
    now = await store.now()
    run = ToolRun(
        lease.job_id, lease.attempt, "codex", "a", lease.worker_id, now, now, (("a", 9),), CliRun(RunClass.OK)
    )
    await store.leases.record(lease, [event("tool_run_ended")], effects=[add_tool_run(run)])
    await store.leases.finish(lease, completed("null", 1.0))
    other = await started(store, kind="cli.codex")
    await store.files.add_outputs(other, [await store.files.keep("a", Source(b"1"))])
    assert await store.retention.prune([lease.job_id, other.job_id], keep_logs=True) == 1
    assert await store.files.list_files(lease.job_id) == []
    assert await store.tool_runs.read_output(lease.job_id, attempt=0) == []
    [kept] = await store.tool_runs.list_tool_runs(lease.job_id)
    assert kept.files == (("a", 9),)
    assert len(await store.files.list_files(other.job_id)) == 1
