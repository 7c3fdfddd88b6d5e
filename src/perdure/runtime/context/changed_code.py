"""What happens when the handler's code does not fit what is recorded: the job is suspended until code comes that does."""

from __future__ import annotations

import json
from typing import NoReturn

import structlog

from perdure.model.current_attempt import attempt_ids
from perdure.model.effects import close_wait, open_wait
from perdure.model.errors import StepChanged, Suspended
from perdure.model.events import NewEvent
from perdure.model.jobs import Outcome, Wait
from perdure.model.states import Status
from perdure.model.waits import CODE
from perdure.model.waits.code import PREFIX
from perdure.runtime.outcomes import clean
from perdure.runtime.run import Run

log = structlog.get_logger("perdure.run")

_MOST_TEXT = 500


async def refuse(run: Run, on_change: str | None, kind: str, key: str, changed: StepChanged) -> NoReturn:
    """Raise StepChanged where options or the handler's policy say "fail"; else suspend the job, which uses no retry.

    The waits of versions that did not fit before are opened again: what answered them has shown that it does not fit either.
    """
    if (on_change or run.handler.policy.on_change) == "fail":
        raise changed
    said = clean(changed.message)[:_MOST_TEXT]
    mine = Wait(f"{PREFIX}{run.version}", CODE.name, None, said)
    before = [
        Wait(wait.key, CODE.name, None, wait.subject_id) for wait in run.history.code_waits if wait.key != mine.key
    ]
    kept = () if run.pending is None else run.pending.keep_code_waits()
    ended = [
        wait for wait in before if wait.key not in {wait.key for wait in kept}
    ]  # by what this attempt wrote before
    payload = {"key": mine.key, "kind": CODE.name, "subject": said, "version": run.version, "called": kind, "step": key}
    waits = [*before, mine]
    await run.record(
        [NewEvent("wait_started", json.dumps(payload)), *map(_begins_again, ended)],
        *(close_wait(CODE.name, wait.key) for wait in waits),
        *(open_wait(wait) for wait in waits),
    )
    log.warning(
        "the code does not fit what the job recorded: it waits for other code", **attempt_ids(), difference=said
    )
    run.stop("changed code", Outcome(Status.PARKED, reason=said))
    raise Suspended("changed code")


def _begins_again(wait: Wait) -> NewEvent:
    payload = {"key": wait.key, "kind": CODE.name, "subject": wait.subject_id, "version": wait.key.removeprefix(PREFIX)}
    return NewEvent("wait_started", json.dumps(payload))
