"""Random histories of jobs with concurrency keys: never more leases than the maximum, and no job is forgotten."""

import asyncio
import random
from collections import Counter
from uuid import UUID

import pytest

from perdure.model.jobs import Lease, Outcome
from perdure.store.open import open_store
from perdure.store.protocol import Store
from perdure.store.protocol.leases import KindLimit
from tests.conformance.support import KINDS, S, enqueue, outcome, own_queue, run_out

STEPS = 120
KEYS = {"a": 1, "b": 2, "c": 5}
OF_HANDLER = {"write": KindLimit("write", 2)}


class History:
    """What happened to some jobs, with the leases that are live."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.queue = own_queue()
        self.jobs: list[UUID] = []
        self.leases: dict[UUID, Lease] = {}
        self.keys: dict[UUID, str] = {}
        self.limits = {**KEYS, "write": 2}
        self.over: Counter[str] = Counter()
        """How many leases of a key there were when its limit was lowered: they drain."""

    async def step(self) -> None:
        """Anything that may happen."""
        await self.random.choice(
            [
                self.add,
                self.add,
                self.claim,
                self.claim,
                self.claim,
                self.end,
                self.end,
                self.crash,
                self.cancel,
                self.change,
            ]
        )()
        await self.check()

    async def add(self) -> None:
        """Some jobs are enqueued."""
        for _ in range(self.random.randint(1, 4)):
            key = self.random.choice([*KEYS, None])
            more = {} if key is None else {"concurrency_key": key, "max_concurrent": KEYS[key]}
            kind = self.random.choice(["echo", "write"])
            self.jobs.append(
                await enqueue(
                    self.store, queue=self.queue, kind=kind, priority=self.random.randint(4, 6), max_retries=9, **more
                )
            )

    async def claim(self) -> None:
        """A worker looks for free slots, or does not, and claims."""
        if self.random.random() < 0.7:
            await self.store.leases.release_held(limit=self.random.choice([1, 100]))
        got = await self.store.leases.claim(
            worker_id="w", queue=self.queue, kinds=KINDS, limit=self.random.randint(1, 6), ttl=60, limits=OF_HANDLER
        )
        for job in got:
            self.leases[job.id] = job.lease
            if job.concurrency_key is not None:
                self.keys[job.id] = job.concurrency_key
        assert len({job.id for job in got}) == len(got)

    async def end(self) -> None:
        """An attempt ends: well, to be tried again, or parked."""
        if self.leases:
            lease = self.leases.pop(self.random.choice(list(self.leases)))
            how = self.random.choice([S.COMPLETED, S.COMPLETED, S.FAILED, S.RETRY, S.PARKED])
            changes = {"delay": 0.0} if how is S.RETRY else {}
            await self.store.leases.finish(lease, Outcome(how) if how is S.PARKED else outcome(how, **changes))

    async def crash(self) -> None:
        """A worker dies with some leases, and they are reaped."""
        lost = self.random.sample(list(self.leases), min(len(self.leases), self.random.randint(0, 3)))
        if lost:
            await run_out(self.store, *(self.leases.pop(id) for id in lost), started=self.random.random() < 0.5)
            await self.check(expired=lost)
            await self.store.leases.reap(worker_id="other")

    async def cancel(self) -> None:
        """A job is cancelled, whether it waits, is held or runs."""
        if self.jobs:
            id = self.random.choice(self.jobs)
            if not (await self.store.jobs.get_job(id)).status.terminal:
                await self.store.jobs.cancel(id, note="{}", force=True)
                self.leases.pop(id, None)

    async def change(self) -> None:
        """An operator sets a limit or removes it."""
        key = self.random.choice(list(self.limits))
        if self.random.random() < 0.4:
            await self.store.limits.unset_limit(key)
            self.limits[key] = {**KEYS, "write": 2}[key]
        else:
            self.limits[key] = self.random.randint(0, 4)
            await self.store.limits.set_limit(key, self.limits[key], by="ann")
        self.over[key] = self.in_use()[key]

    def in_use(self) -> Counter[str]:
        """The live leases of each key, as this history knows them."""
        return Counter(self.keys[id] for id in self.leases if id in self.keys)

    async def check(self, expired: list[UUID] | None = None) -> None:
        """Never more leases of a key than its maximum, apart from those that drain; the store counts what there is."""
        used = self.in_use() + Counter(self.keys[id] for id in expired or () if id in self.keys)
        for key, number in used.items():
            self.over[key] = min(self.over[key], number)
            assert number <= max(self.limits[key], self.over[key]), (key, number)
        listed = {limit.key: limit.in_use for limit in await self.store.limits.list_limits() if limit.in_use}
        assert listed == dict(used)

    async def drain(self) -> None:
        """Everything ends well, so nothing was forgotten."""
        for key in self.limits:
            await self.store.limits.unset_limit(key)
        self.limits = {**KEYS, "write": 2}
        self.over = self.in_use()
        for id in self.jobs:  # what was lost together with others is due later
            if (await self.store.jobs.get_job(id)).status is S.RETRY:
                await self.store.jobs.retry_now(id, note="{}")
        for _ in range(10 * STEPS):
            released = await self.store.leases.release_held()
            before = len(self.leases)
            await self.claim()
            await self.check()
            if not self.leases and before == 0 and not released:
                break
            for id in list(self.leases):
                await self.store.leases.finish(self.leases.pop(id), outcome(S.COMPLETED))
        left = [id for id in self.jobs if not (await self.store.jobs.get_job(id)).status.terminal]
        assert left == []


@pytest.mark.parametrize("seed", range(4))
async def test_any_history_keeps_to_the_maximum_and_forgets_no_job(store: Store, seed: int) -> None:
    history = History(store, seed)
    for _ in range(STEPS):
        await history.step()
    await history.drain()


async def test_workers_at_the_same_time_keep_to_the_maximum_and_forget_no_job(
    file_store: Store, file_store_url: str
) -> None:
    """Several connections that claim, end and release at once, each with a store of its own."""
    queue, workers = own_queue(), 5
    keys = {f"k{n}": 1 + n % 3 for n in range(6)}
    ids = [
        await enqueue(file_store, queue=queue, concurrency_key=key, max_concurrent=most)
        for _ in range(12)
        for key, most in keys.items()
    ]
    running: Counter[str] = Counter()
    done: list[UUID] = []

    async def work(number: int) -> None:
        rng = random.Random(number)
        store = await open_store(file_store_url)
        try:
            async with asyncio.timeout(60):
                while len(done) < len(ids):
                    await store.leases.release_held()
                    got = await store.leases.claim(
                        worker_id=f"w{number}", queue=queue, kinds=KINDS, limit=rng.randint(1, 4), ttl=60
                    )
                    for job in got:
                        assert job.concurrency_key is not None
                        running[job.concurrency_key] += 1
                        assert running[job.concurrency_key] <= keys[job.concurrency_key]
                    for job in got:
                        await asyncio.sleep(rng.random() * 0.005)
                        assert job.concurrency_key is not None
                        running[job.concurrency_key] -= 1
                        await store.leases.finish(job.lease, outcome(S.COMPLETED))
                        done.append(job.id)
                    if not got:
                        await asyncio.sleep(0.001)
        finally:
            await store.close()

    await asyncio.gather(*(work(n) for n in range(workers)))
    assert sorted(done) == sorted(ids)
