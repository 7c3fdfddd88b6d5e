"""A kind of wait that perdure does not have: everything that adding one takes is in this file."""

from datetime import timedelta
from uuid import UUID

from perdure.model.explanation import Move, Situation, Why
from perdure.model.jobs import Wait
from perdure.model.states import Status
from perdure.model.waits import Facts, WaitFault, WaitKind, WaitLine


class FlagWait(WaitKind[object, str]):
    """A flag with a name, which is its subject; it has no other content than the time at which it came."""

    name = "flag"
    noun = "a flag"

    def __init__(self, status: Status = Status.PARKED) -> None:
        self.status = status

    async def answer(self, store: object, job_id: UUID, wait: Wait) -> str | None:
        return None if wait.answered_at is None else f"{wait.subject_id} came"

    def line(self, wait: Wait, seen: Situation) -> WaitLine | None:
        short = f"flag '{wait.subject_id}' is to come"
        send = Move("send it", f"perdure jobs flag {seen.job.short_id} {wait.subject_id}")
        return WaitLine(Why.WAITING, f"It waits: {short}.", short, "flags", {"name": wait.subject_id}, (send,))

    def woke(self, wait: Wait, seen: Situation) -> str | None:
        return None if wait.answered_at is None else f"Flag '{wait.subject_id}' came, "

    def fault(self, wait: Wait, facts: Facts) -> WaitFault | None:
        if wait.answered_at is None or wait.answered_at < facts.now + timedelta(minutes=1):
            return None
        return WaitFault(f"flag '{wait.subject_id}' comes from the future", facts.now)


FLAG = FlagWait()
