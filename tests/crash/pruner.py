"""A process that exports and prunes, and kills itself at a given point."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

from perdure import App
from perdure.runtime.export_file import Archive
from tests.crash.child_config import ChildConfig
from tests.crash.kill_points import at_point, kill_self, write_mark

BATCH = 3
FILE = "old.jsonl.gz"
POINTS = (
    "before add 2",
    "before save 1",
    "after save 1",
    "before prune 2",
    "during prune 2",
    "after prune 2",
    "before add 9",
)


async def prune(config: ChildConfig) -> None:
    """Prune everything that is finished into the file, in small batches."""
    count = dict.fromkeys(("add", "save", "prune"), 0)
    add, save = Archive.add, Archive.save

    def adding(archive: Archive, line: str) -> None:
        if '"record":"job"' in line:
            count["add"] += 1
            at_point(f"before add {count['add']}")
        add(archive, line)

    def saving(archive: Archive) -> None:
        count["save"] += 1
        at_point(f"before save {count['save']}")
        save(archive)
        at_point(f"after save {count['save']}")

    setattr(Archive, "add", adding)  # noqa: B010  bent, so untyped
    setattr(Archive, "save", saving)  # noqa: B010  as above
    async with App(config.url) as app:
        store = await app.open()
        original = store.retention.prune

        async def pruning(ids: list[UUID], **more: Any) -> int:
            count["prune"] += 1
            number = count["prune"]
            at_point(f"before prune {number}")
            if config.kill_at == f"during prune {number}":
                write = asyncio.ensure_future(original(ids, **more))
                await asyncio.wait({write}, timeout=0.002)
                kill_self()
            pruned = await original(ids, **more)
            at_point(f"after prune {number}")
            return pruned

        store.retention.prune = pruning  # type: ignore[method-assign,assignment]  # bent
        write_mark("ready", "pruner")
        await app.database.prune(older_than=0, batch=BATCH, export=Path(config.place, FILE))
