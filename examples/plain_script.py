"""Jobs from a plain script, without async: count the words of files, each in a job of its own.

    python plain_script.py work               in one terminal: run jobs until Ctrl-C
    python plain_script.py README.md ...      in another: enqueue, wait, print

The jobs are in perdure.db, in the current directory, or where PERDURE_DATABASE_URL says. Kill the worker in the middle and start
it again: it goes on after the last part that was recorded. Ask for a file again that has not changed and the answer is there at
once: the idempotency key makes it the same job.
"""

from __future__ import annotations

import sys
from pathlib import Path

from perdure import App, BlockingContext, Fail, JobFailed
from perdure.sync import Client

app = App()
PART = 1 << 20


def count(path: str, part: int) -> int:
    """The words that begin in one part of a file; a word that a border cuts is counted where it begins."""
    with Path(path).open("rb") as file:
        file.seek(max(part * PART - 1, 0))
        before = file.read(1) if part else b" "
        data = file.read(PART)
    words = len(data.split())
    return words - (not before.isspace() and not data[:1].isspace() and words > 0)


@app.job
def count_words(ctx: BlockingContext, path: str) -> int:
    """Count part by part; each part is recorded, and none is counted again after a crash."""
    if not Path(path).is_file():
        raise Fail(f"{path} is no file")
    parts = range(Path(path).stat().st_size // PART + 1)
    return sum(ctx.step("count", count, path, part) for part in parts)


def main(paths: list[str]) -> int:
    """Enqueue a job for each file, wait for all of them, and print what came of it; 1 if one failed."""
    code = 0
    with Client(app) as client:
        jobs = {}
        for path in map(Path, paths):
            version = path.stat().st_mtime_ns if path.exists() else 0
            file = str(path.absolute())
            jobs[path] = client.enqueue(count_words, file, idempotency_key=f"{file}@{version}")
        for path, job in jobs.items():
            try:
                print(f"{job.result(timeout='10m'):8} {path}")
            except JobFailed as error:
                print(f"{path}: {error.message}", file=sys.stderr)
                code = 1
    return code


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        app.run_worker()
    elif sys.argv[1:]:
        sys.exit(main(sys.argv[1:]))
    else:
        sys.exit("usage: python plain_script.py work | FILE...")
