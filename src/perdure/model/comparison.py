"""What differs between two jobs: their inputs, steps, results and ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perdure.model.events import Event
from perdure.model.jobs import Job
from perdure.model.steps import Step, steps_of


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two JSON values. `path` leads to it (`items.0.name`; empty: the whole). A part that is only in
    one of them is None in the other, and `change` says so."""

    path: str
    change: Literal["changed", "only_a", "only_b"]
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class StepDiff:
    """A step of either job, by its key. `what` names what differs if both have it: kind, status, arguments, result, error.
    Its duration is in `a` and `b`, but is not compared."""

    key: str
    change: Literal["same", "changed", "only_a", "only_b"]
    what: tuple[str, ...]
    a: Step | None
    b: Step | None


@dataclass(frozen=True, slots=True)
class JobDiff:
    """Two jobs compared. `outcome` compares kind, status, error_message and error_kind. `steps` has all steps of both jobs,
    those of `a` first, in their order."""

    a: Job
    b: Job
    input: tuple[Change, ...]
    steps: tuple[StepDiff, ...]
    result: tuple[Change, ...]
    outcome: tuple[Change, ...]

    @property
    def equal(self) -> bool:
        """True where nothing differs."""
        return not (self.input or self.result or self.outcome or any(s.change != "same" for s in self.steps))


def compare(a: Job, a_events: Iterable[Event], b: Job, b_events: Iterable[Event]) -> JobDiff:
    """Compare two jobs by their rows and their logs."""
    return JobDiff(
        a,
        b,
        input=tuple(changes(a.payload, b.payload)),
        steps=tuple(_steps(steps_of(a_events), steps_of(b_events))),
        result=tuple(changes(a.result, b.result)),
        outcome=tuple(changes(_outcome(a), _outcome(b))),
    )


def _outcome(job: Job) -> dict[str, Any]:
    return {
        "kind": job.kind,
        "status": job.status.value,
        "error_message": job.error_message,
        "error_kind": job.error_kind,
    }


def changes(a: Any, b: Any, path: str = "") -> Iterator[Change]:
    """The differences between two JSON values: objects by key, lists by place."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in (*a, *(k for k in b if k not in a)):
            yield from _part(a, b, key, path, key in a, key in b)
    elif isinstance(a, list) and isinstance(b, list):
        for place in range(max(len(a), len(b))):
            yield from _part(a, b, place, path, place < len(a), place < len(b))
    elif type(a) is not type(b) or a != b:
        yield Change(path, "changed", a, b)


def _part(a: Any, b: Any, name: Any, path: str, in_a: bool, in_b: bool) -> Iterator[Change]:
    deeper = f"{path}.{name}" if path else str(name)
    if in_a and in_b:
        yield from changes(a[name], b[name], deeper)
    elif in_a:
        yield Change(deeper, "only_a", a[name], None)
    else:
        yield Change(deeper, "only_b", None, b[name])


def _steps(a: Sequence[Step], b: Sequence[Step]) -> Iterator[StepDiff]:
    only_b = {(step.kind, step.key): step for step in b}
    pairs = {id(step): only_b.pop((step.kind, step.key), None) for step in a}
    by_key = {step.key: of for of, step in only_b.items()}
    for step in a:
        other = pairs[id(step)]
        if other is None and step.key in by_key:  # it became another kind
            other = only_b.pop(by_key.pop(step.key))
        if other is None:
            yield StepDiff(step.key, "only_a", (), step, None)
        else:
            what = tuple(_differing(step, other))
            yield StepDiff(step.key, "changed" if what else "same", what, step, other)
    for step in only_b.values():
        yield StepDiff(step.key, "only_b", (), None, step)


def _differing(a: Step, b: Step) -> Iterator[str]:
    for name in ("kind", "status"):
        if getattr(a, name) != getattr(b, name):
            yield name
    if a.digest != b.digest:
        yield "arguments"
    if next(changes(a.result, b.result), None):
        yield "result"
    if a.error != b.error:
        yield "error"
