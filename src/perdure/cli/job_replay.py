"""`perdure jobs replay`: a recorded job again, offline."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.context import Cli
from perdure.cli.format import one_line
from perdure.cli.job_options import app
from perdure.cli.options import command
from perdure.cli.usage_error import Usage
from perdure.operations.export import export_jobs

if TYPE_CHECKING:
    from rich.text import Text

    from perdure.testing import Recording


@command(
    app,
    "replay",
    example="""\
perdure jobs replay 43149ff1 --app agents:app
perdure jobs export 43149ff1 --to order.jsonl && perdure jobs replay order.jsonl --app agents:app
perdure jobs replay order.jsonl --to publish --app agents:app""",
)
async def replay_(
    cli: Cli,
    job: Annotated[str, typer.Argument(metavar="ID|FILE", help="A job, or a file of jobs export")],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="STEP", help="Stop before this step: its name, or its number in jobs steps"),
    ] = None,
) -> None:
    """Run the handler of a recorded job again, offline: the record answers its steps, tools, waits and approvals.

    No step is called and nothing is stored. If the code does other things than those that were recorded, it ends with exit
    code 1 and names the first step that differs.
    """
    from rich.text import Text

    from perdure.testing import replay

    cli.loads_app = True
    if not cli.settings["app"]:
        raise Usage("which handlers? Name their App: --app module:attribute")
    for recording in await _recordings(cli, job):
        done = await replay(cli.app, recording, to=to)
        end = f"{done.status}, as recorded" if done.reached is None else f"it comes to '{one_line(done.reached)}'"
        steps = "1 step" if done.steps == 1 else f"{done.steps} steps"
        text = Text(f"{recording.short_id} {one_line(recording.kind)}: {steps} answered from the record; {end}")
        cli.out.one(done, partial(_same, text), id=done.job_id, plain=asdict)


def _same(text: Text) -> Text:
    return text


async def _recordings(cli: Cli, job: str) -> list[Recording]:
    from perdure.testing import read_recordings
    from perdure.testing.recording import recordings_of

    if Path(job).suffix in (".jsonl", ".gz", ".json") or "/" in job:
        return read_recordings(job)
    async with cli.client() as client:
        records = [record async for record in export_jobs(client, (job,))]
    return list(recordings_of(records, f"job {job}"))
