"""What one tenant has of tasks, accounts and files is not there for another: by the App, the command line and the views."""

from typing import Any

import pytest

from perdure import AccountNotFound, App, Client, FileNotFound, JobNotFound
from perdure.model.tooling import Account, TaskSpec
from perdure.operations import accounts, tasks
from tests.conformance.sql_shell import open_shell
from tests.tools.conftest import Runs

TASK = TaskSpec("codex", "write results.txt", output_spec=("results.txt",))


@pytest.fixture
async def app(app: App) -> App:
    """The default tenant has an account, and a task that has run."""
    await app.tasks.enqueue(TASK, files={"a.txt": b"secret"})
    await app.work(once=True)
    return app


@pytest.fixture
def other(app: App) -> Client:
    return app.acting(tenant="acme")


async def test_tasks_and_files_of_another_tenant_are_not_there(app: App, other: Client, runs: Runs) -> None:
    [task] = (await tasks.list_tasks(app.client)).items
    assert [file.path for file in await app.tasks.files(task.id)] == ["a.txt", "results.txt"]
    assert (await tasks.list_tasks(other)).items == ()
    assert (await tasks.list_tasks(other, tools=("codex",))).items == ()
    id = str(task.id)
    for call in (
        tasks.get_task(other, id, with_files=True),
        tasks.list_task_files(other, id),
        tasks.copy_task_file(other, id, "a.txt", is_input=True, on_piece=print),
        tasks.read_task_output(other, id),
        tasks.requeue_task(other, id),
        other.tasks.runs(id),
        other.jobs.cancel(id),
    ):
        with pytest.raises(JobNotFound):
            await call
    own = await other.tasks.enqueue(TASK, files={"a.txt": b"mine"})
    assert await other.tasks.read_file(own.id, "a.txt", is_input=True) == b"mine"
    assert await app.tasks.read_file(task.id, "a.txt", is_input=True) == b"secret"
    with pytest.raises(FileNotFound):
        await other.tasks.read_file(own.id, "results.txt")


async def test_accounts_of_another_tenant_are_not_there(app: App, other: Client) -> None:
    assert await accounts.list_accounts(other) == []
    for call in (
        accounts.get_account(other, "a"),
        accounts.enable_account(other, "a"),
        accounts.disable_account(other, "a"),
        accounts.set_account_limits(other, "a", max_concurrency=1),
        accounts.check_account(other, "a"),
        accounts.remove_account(other, "a"),
        other.tasks.enqueue(TaskSpec("codex", "x", account="a")),
    ):
        with pytest.raises(AccountNotFound):
            await call
    await other.accounts.add(Account("a", "codex", max_concurrency=9))
    assert (await app.accounts.get("a")).account.max_concurrency == 4


async def test_a_worker_runs_the_tasks_of_its_tenant_alone(app: App, other: Client, runs: Runs) -> None:
    await other.accounts.add(Account("theirs", "codex"))
    handle = await other.tasks.enqueue(TASK)
    await app.work(once=True)
    assert (await handle.get()).attempt == 0
    assert runs.accounts == ["a"]


@pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
async def test_every_view_says_whose_its_rows_are_or_names_their_task(app: App, other: Client) -> None:
    """The views are of the whole database, for its owner; each row leads to the tenant."""
    await other.accounts.add(Account("theirs", "codex"))
    await other.tasks.enqueue(TASK, files={"b.txt": b"b"})
    async with open_shell(app.settings["database_url"]) as shell:
        found: dict[str, Any] = {}
        for tenant in ("default", "acme"):
            found[tenant] = {
                "tasks": await shell.run(f"select id from tasks where tenant_id = '{tenant}'"),
                "limits": await shell.run(f"select scope from concurrency_limits where tenant_id = '{tenant}'"),
                "files": await shell.run(
                    f"select f.path from task_files f join tasks t on t.id = f.task_id where t.tenant_id = '{tenant}'"
                ),
                "runs": await shell.run(
                    f"select r.status from task_runs r join tasks t on t.id = r.task_id where t.tenant_id = '{tenant}'"
                ),
            }
    counts = {tenant: {name: len(rows) for name, rows in views.items()} for tenant, views in found.items()}
    assert counts == {
        "default": {"tasks": 1, "limits": 1, "files": 2, "runs": 1},
        "acme": {"tasks": 1, "limits": 1, "files": 1, "runs": 0},
    }
