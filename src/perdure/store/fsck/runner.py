"""How a check runs, over both dialects: examine a page, examine again what seems wrong, repair one fault at a time."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog

from perdure.model.fsck_faults import FAULTS, CheckPage, Finding
from perdure.store.blobs.contents import Contents
from perdure.store.fsck.case import Case, Fault, Repair
from perdure.store.fsck.contents import CheckedFile, faults_of_contents
from perdure.store.fsck.rules import faults_of
from perdure.store.rows import Row

SECOND_CHECK_AFTER = 0.05
"""Seconds between the two examinations of a job that seems damaged."""
MOST_REPAIRS = 1000
"""Repairs of one job before something must be wrong with the repairs."""

INDISPENSABLE = ("table ", "view clock", "function db_now")
"""Without them there is nothing to ask: how the text of their loss begins."""

log = structlog.get_logger("perdure.store")


@dataclass(frozen=True, slots=True)
class Examined:
    """An id, as the dialect writes it and (if it is one) as a UUID, and what is wrong there."""

    key: Any
    id: UUID | None
    faults: Sequence[Fault]


@dataclass(frozen=True, slots=True)
class IdPage:
    """A page of ids: how many jobs of our own were among them, those with faults, and the last id (None: the end)."""

    jobs: int
    faulty: Sequence[Examined]
    last: str | None


class RepairFailed(Exception):
    """A repair was refused or did not help, and its transaction left nothing. `fault` is None where the job could not even be
    locked."""

    def __init__(self, fault: Fault | None, why: str = "the repair did not help") -> None:
        super().__init__(why)
        self.fault = fault
        self.why = why


class FsckRunner(ABC):
    """See `fsck.CheckStore`. Each dialect reads the rows and makes the repairs."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    @abstractmethod
    async def check_schema(self) -> None:
        """See `protocol.SchemaStore.check_schema`."""

    @abstractmethod
    async def _schema_faults(self) -> list[Fault]:
        """What is wrong with tables and triggers."""

    @abstractmethod
    async def _examine_page(self, after: str | None, limit: int) -> IdPage:
        """Examine the next ids in one snapshot."""

    @abstractmethod
    async def _files(self, after: str | None, up_to: str | None, *, whole: bool) -> list[CheckedFile]:
        """The files of this tenant's jobs with ids in this range whose contents are blobs; whole: all of its files."""

    @abstractmethod
    async def _examine(self, keys: Sequence[Any]) -> list[Examined]:
        """Examine these ids in one snapshot."""

    @abstractmethod
    async def _repair_one(self, key: Any, given_up: Collection[str]) -> Fault | None:
        """In one transaction, under the job's locks: examine it, make the first repair whose code is not given up, examine it
        again, and return the fault that is gone. Raises RepairFailed; other errors mean that the database is out of reach."""

    @abstractmethod
    async def _repair_whole(self, repairs: Sequence[Repair]) -> None:
        """Make these repairs, which are of no single job, in one transaction."""

    @abstractmethod
    def _key_of(self, id: UUID) -> Any:
        """An id as the dialect writes it."""

    async def check(self, *, after: str | None = None, limit: int = 200, deep: bool = False) -> CheckPage:
        """See `fsck.CheckStore.check`."""
        findings: list[Finding] = []
        if after is None:
            await self.check_schema()
            faults = await self._schema_faults()
            unreadable = any(fault.code == "schema-lost" and fault.text.startswith(INDISPENSABLE) for fault in faults)
            findings += [_finding(None, fault, more=": no job was examined" if unreadable else "") for fault in faults]
            if unreadable:
                return CheckPage(tuple(findings), 0, None)
        portion = await self._examine_page(after, limit)
        if portion.faulty:
            await asyncio.sleep(SECOND_CHECK_AFTER)
            seen = {examined.key: {fault.code for fault in examined.faults} for examined in portion.faulty}
            for examined in await self._examine(list(seen)):
                findings += [
                    _finding(examined.id, fault) for fault in examined.faults if fault.code in seen[examined.key]
                ]
        files = await self._files(after, portion.last, whole=deep)
        contents = await faults_of_contents(self._contents, files, deep=deep)
        findings += [_finding(job_id, fault) for job_id, fault in contents]
        return CheckPage(tuple(findings), portion.jobs, portion.last)

    async def repair(self, job_id: UUID | None) -> list[Finding]:
        """See `fsck.CheckStore.repair`."""
        if job_id is None:
            before = [fault for fault in await self._schema_faults() if fault.repair]
            if not before:
                return []
            await self._repair_whole([fault.repair for fault in before if fault.repair])
            left = {fault.code for fault in await self._schema_faults()}
            return [_finding(None, fault, fixed=fault.code not in left) for fault in before]
        key = self._key_of(job_id)
        findings: list[Finding] = []
        reasons: dict[str, str] = {}
        while len(findings) < MOST_REPAIRS:
            try:
                fault = await self._repair_one(key, reasons)
            except RepairFailed as failed:
                if failed.fault is None:
                    reasons = dict.fromkeys(FAULTS, failed.why)
                    break
                reasons[failed.fault.code] = failed.why
                continue
            if fault is None:
                break
            log.info("repaired", job_id=str(job_id), fault=fault.code, was=fault.text)
            findings.append(_finding(job_id, fault, fixed=True))
        for examined in await self._examine([key]):
            for fault in examined.faults:
                why = reasons.get(fault.code) if fault.repair else None
                findings.append(_finding(job_id, fault, more=f" (not repaired: {why})" if why else ""))
        return findings


def _finding(job_id: UUID | None, fault: Fault, *, fixed: bool = False, more: str = "") -> Finding:
    return Finding(fault.code, job_id, fault.text + more, fault.repair is not None, fixed)


def first_repair(faults: Sequence[Fault], given_up: Collection[str]) -> tuple[Fault, Repair] | None:
    """What is to be repaired next, if anything."""
    for fault in faults:
        if fault.repair is not None and fault.code not in given_up:
            return fault, fault.repair
    return None


def examine(case: Case) -> Examined:
    """What is wrong with a case that has been read to its end."""
    return Examined(case.key, case.id, faults_of(case))


def memory_faults(unindexed: int, sums: int, tenant_id: str) -> list[Fault]:
    """What is wrong with long-term memory: how many entries, and how many scopes. The repair lets the entries whose terms are not
    whole lack all of them; who has an embedder makes them again."""
    before = ("lock_tenant_memory", "drop_wrong_terms", "mark_unindexed", "mark_unlabelled")
    repair = Repair("put_memory_sums", {"tenant_id": tenant_id}, before)
    found = []
    if unindexed:
        found.append(Fault("memory-unindexed", f"{unindexed} entries of memory lack search terms or a vector", repair))
    if sums:
        text = f"{sums} scopes of memory have other numbers of entries or terms than they say"
        found.append(Fault("memory-sums", text, repair))
    return found


def prune_left(jobs: int) -> Fault:
    """Marks that no pruning will remove: it would have done so in its own transaction."""
    text = f"{jobs} jobs are marked for deletion, and no pruning is under way"
    return Fault("prune-left", text, Repair("drop_prune_marks", {}))


def agent_faults(counts: Row, tenant_id: str) -> list[Fault]:
    """What is wrong with agents, tags, unique keys and pauses, from the counts of `check_agents`."""
    return _counted(
        counts,
        tenant_id,
        (
            ("ended", "agent-job-ended", "jobs count as jobs of an agent, and have ended", "drop_agent_jobs"),
            ("undelivered", "message-undelivered", "messages are pending, and no delivery is due", "put_deliveries"),
            ("sessions", "session-differs", "states of sessions are not in the log of the job that saved them", None),
            ("tags", "tag-stale", "rows of tags are of no job that has the tag", "drop_tags"),
            ("unique_keys", "key-stale", "unique keys are held by jobs that have ended", "drop_unique_keys"),
            ("pauses", "pause-differs", "pauses of queues ended before they began", None),
        ),
    )


def agent_signal_faults(counts: Row, tenant_id: str) -> list[Fault]:
    """What is wrong with signals to agents, from the counts of `check_agent_signals`."""
    return _counted(
        counts,
        tenant_id,
        (
            (
                "lost",
                "agent-signal-lost",
                "signals to agents count as got by jobs that lack them",
                "release_agent_signals",
            ),
            ("differs", "agent-signal-differs", "signals to agents are those of other jobs", "follow_agent_signals"),
            ("orphan", "agent-signal-orphan", "signals are pending for agents that do not exist", None),
            (
                "unbound",
                "agent-signal-unbound",
                "pending signals are waited for, and no delivery is due",
                "put_signal_deliveries",
            ),
        ),
    )


def _counted(counts: Row, tenant_id: str, kinds: Iterable[tuple[str, str, str, str | None]]) -> list[Fault]:
    """kinds: the column of the count, the code, the text that follows the number, and the repair."""
    tenant = {"tenant_id": tenant_id}
    return [
        Fault(code, f"{counts[name]} {text}", None if statement is None else Repair(statement, tenant))
        for name, code, text, statement in kinds
        if counts[name]
    ]
