"""For tests of handlers: an App in memory, a clock that the test moves, and crashes at every record.

async with TestApp(app) as t:
    job = await t.enqueue(research, Brief("tea"))
    await t.run_until_idle(advance=True)
    assert (await job.get()).status == "COMPLETED"
    await t.crash_after_each_step(research, Brief("tea"))

# replay(app, recording) runs a recorded job again, offline
"""

from __future__ import annotations

from perdure.model.steps import Step
from perdure.testing.app import TestApp
from perdure.testing.clock import ManualClock
from perdure.testing.crash import Boundary, CrashReport, Decide
from perdure.testing.recording import Recording, read_recordings
from perdure.testing.replay import Replay, replay

__all__ = [
    "Boundary",
    "CrashReport",
    "Decide",
    "ManualClock",
    "Recording",
    "Replay",
    "Step",
    "TestApp",
    "read_recordings",
    "replay",
]
