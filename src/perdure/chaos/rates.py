"""Whether jobs of a key with a rate started as seldom as it says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from perdure.chaos.invariants import JobData
from perdure.chaos.jobs import RATE, RATED
from perdure.chaos.report import Report

MINUTE = timedelta(seconds=60)
NEAR = timedelta(seconds=0.25)
"""The count of the starts and the event of a start are written one after the other."""


class RateProof:
    """The starts of each key with a rate. `add` is given every job."""

    def __init__(self) -> None:
        self._starts: dict[str, list[datetime]] = {}

    def add(self, data: JobData) -> None:
        """A job, with its log."""
        key = data.job.concurrency_key
        if data.job.kind == RATED and key is not None:
            self._starts.setdefault(key, []).extend(event.at for event in data.moves if event.type == "run_started")

    def faults(self, report: Report) -> Iterator[str]:
        """What is wrong, one line each."""
        for key, starts in self._starts.items():
            starts.sort()
            for first, beyond in zip(starts, starts[RATE:], strict=False):
                if beyond - first < MINUTE - NEAR:
                    yield f"more than {RATE} jobs of '{key}' started within a minute: from {first} to {beyond}"
            most = max((sum(first <= at < first + MINUTE for at in starts) for first in starts), default=0)
            report.found["starts in a minute"] = max(report.found["starts in a minute"], most)
