"""The agent of `perdure demo --tool`: a coding CLI drafts release notes, a person approves them, and they are written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure import App, JobContext, TaskSpec
from perdure.model.task_payload import KIND_PREFIX, payload_of_task

NOTES = "RELEASE_NOTES.md"
PROMPT = f"""\
Write release notes in Markdown, for people who use this project, into the file {NOTES} in the current directory.
Group the changes, leave out what no user notices, and invent nothing. Write no other file. The commits, newest first:

"""

app = App()


@dataclass(frozen=True)
class Brief:
    """The input. tool: which CLI writes; commits: as text; output: the file that is written in the end."""

    tool: str
    commits: str
    output: str


@app.job
async def cli_notes(ctx: JobContext, brief: Brief) -> dict[str, Any]:
    """Draft, approval, file. The draft is a task, a child of this job: it survives the worker that runs it."""
    task = TaskSpec(brief.tool, PROMPT + brief.commits, output_spec=(NOTES,), timeout=600.0)
    draft = await ctx.spawn(KIND_PREFIX + brief.tool, payload_of_task(task, ()), key="draft")
    await ctx.wait_for(draft)
    text = await ctx.step("read", read_draft, str(draft.id))
    decision = await ctx.approve(
        "publish", title="Write these release notes?", payload={"text": text}, expires_in="24h"
    )
    return {"bytes": await ctx.tool("write", write_notes, brief.output, decision.payload["text"])}


async def read_draft(task_id: str) -> str:
    """The file that the CLI wrote."""
    return (await app.tasks.read_file(task_id, NOTES)).decode(errors="replace")


def write_notes(path: str, text: str) -> int:
    """The side effect: the file, with the text that was approved."""
    return Path(path).write_text(text, encoding="utf-8")
