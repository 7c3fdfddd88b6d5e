"""Seeing and stopping workers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from perdure.model.errors import AmbiguousId, InvalidInput, WorkerNotFound
from perdure.model.workers import WorkerCommand, WorkerInfo, WorkerState
from perdure.operations.errors import NoWorker
from perdure.operations.registry import Role, operation

if TYPE_CHECKING:
    from perdure import Client

NOT_ASKED = (WorkerNotFound, AmbiguousId, InvalidInput, NoWorker)


class Health(StrEnum):
    """How a worker is: LOST sends no heartbeats and has not said that it stopped; DRAINING takes no more jobs."""

    RUNNING = "running"
    DRAINING = "draining"
    LOST = "lost"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Asked:
    """Workers that were asked for something."""

    worker_ids: tuple[str, ...]
    command: WorkerCommand


def health_of(worker: WorkerInfo) -> Health:
    """How a worker is, from what the database knows of it."""
    if worker.state is WorkerState.STOPPED:
        return Health.STOPPED
    if not worker.alive:
        return Health.LOST
    draining = worker.state is WorkerState.DRAINING or worker.command is not None
    return Health.DRAINING if draining else Health.RUNNING


@operation("workers.list", role=Role.VIEWER)
async def list_workers(client: Client, *, include_stopped: bool = False) -> list[WorkerInfo]:
    """The workers that share the database; `health_of` says how each of them is."""
    return await client.workers.list(include_stopped=include_stopped)


@operation("workers.stop", role=Role.OPERATOR, errors=NOT_ASKED)
async def stop_worker(
    client: Client, worker_id: str | None = None, *, all: bool = False, host: str | None = None, now: bool = False
) -> Asked:
    """Ask a worker to stop: it finishes running steps, hands back the rest and ends.

    worker_id: this one, by its id or its last 6 or more characters; None: the only one that runs. all: every worker that runs.
    host: every worker that runs on this host.
    now: running steps are cancelled as well, and run again.
    """
    return await _ask(client, worker_id, WorkerCommand.STOP_NOW if now else WorkerCommand.STOP, all=all, host=host)


@operation("workers.drain", role=Role.OPERATOR, errors=NOT_ASKED)
async def drain_worker(
    client: Client, worker_id: str | None = None, *, all: bool = False, host: str | None = None
) -> Asked:
    """Ask a worker to take no more jobs, and to end when it holds none. Arguments as for `stop_worker`."""
    return await _ask(client, worker_id, WorkerCommand.DRAIN, all=all, host=host)


async def _ask(client: Client, worker_id: str | None, command: WorkerCommand, *, all: bool, host: str | None) -> Asked:
    if worker_id is not None:
        if all or host is not None:
            raise InvalidInput("give the id of a worker, a host, or all: one of the three")
        ids = [worker_id]
    else:
        alive = [worker for worker in await client.workers.list() if worker.alive]
        ids = [worker.id for worker in alive if all or host in (None, worker.host)]
        if not ids and not all:
            others = f" on host '{host}'; {len(alive)} on other hosts" if alive else ""
            raise NoWorker(f"no worker runs{others}")
        if len(ids) > 1 and not all and host is None:
            raise AmbiguousId(f"{len(ids)} workers run: name one, or all of them", hint=f"they are {', '.join(ids)}")
    asked = []
    for id in ids:
        try:
            await client.workers.command(id, command)
        except WorkerNotFound:
            if worker_id is not None:
                raise
            continue  # it has just left
        asked.append(id)
    return Asked(tuple(asked), command)
