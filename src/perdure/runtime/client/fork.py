"""Forks: a new job that keeps what an old one recorded before some step, and continues from there."""

from __future__ import annotations

from typing import Any

from perdure.model.errors import JobPruned
from perdure.runtime import codec
from perdure.runtime.client.base import JobId
from perdure.runtime.client.enqueue import JobEnqueue
from perdure.runtime.client.new_jobs import again
from perdure.runtime.fork import approvals_in, checkpoint_in, copied, events_to_copy, step_named
from perdure.runtime.handle import Handle
from perdure.runtime.payload import payload_of


class JobFork(JobEnqueue):
    """See `jobs.Jobs`."""

    async def fork(
        self, job_id: JobId, from_step: str | int | None = None, *, input: Any = ..., reason: str | None = None
    ) -> Handle[Any]:
        """A new job, linked to the old one, that keeps the steps recorded before `from_step` and continues from there.

        from_step: a step's name, or its number as `jobs steps` counts them; None keeps all recorded steps. input: another
        input; a kept step that is now called with other arguments fails the job with StepChanged, as in any later attempt.
        The old job may be in any state and does not change. Everything is written in one transaction. Raises StepNotFound,
        JobNotFound, AmbiguousId, JobPruned (without its input; give another), InvalidInput, NotJson, TooLarge. If it raises,
        nothing was written.
        """
        store = await self._store()
        old = await self.get(job_id)
        if old.pruned_at is not None and input is ...:
            raise JobPruned(old, "give the fork an input: input=, or --input JSON; ")
        handler = self._scope.registry.find(old.kind)
        payload = codec.encode(old.payload, "the payload") if input is ... else payload_of(old.kind, handler, input)
        events = await self.events(old.id)
        step = step_named(old.id, events, from_step)
        kept = events_to_copy(events, before=step.version if step else None)
        answers = {id: await store.approvals.get_approval(id) for id in approvals_in(kept)}
        origin = {"origin": str(old.id), **({"from_step": step.key} if step else {})}
        new = again(old, payload, "fork", self._scope.note(reason, **origin))
        recorded = [copied(event, answers) for event in kept]
        stored = await self._send(
            new, lambda job: store.jobs.enqueue_recorded(job, recorded, checkpoint=checkpoint_in(kept))
        )
        return Handle(self, stored.id, handler.output_type if handler else None)
