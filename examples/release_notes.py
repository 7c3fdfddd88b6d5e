"""An agent that writes release notes from a git repository, and outlives the process it runs in.

    python examples/release_notes.py                                 # the repository of this directory
    python examples/release_notes.py ~/src/project --output NOTES.md

It finds the commits since the last tag, reads each of them in a recorded step, groups them, drafts the notes, asks a person
to approve the draft (who may edit it), and writes the file. Everything is real git output; no key, no service, no network.
Kill it at any moment and start it again: it goes on where it was. Or let workers do it, on any machine that has the
repository: `perdure worker start --app release_notes:app`.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import ParamSpec, TypeVar

from perdure import App, Fail, Handle, JobCancelled, JobContext, JobFailed, idempotency_key

P = ParamSpec("P")
R = TypeVar("R")

app = App()


@dataclass(frozen=True)
class Brief:
    """The input. Paths are absolute: the worker may run in another directory."""

    repository: str
    output: str
    limit: int = 30


@dataclass(frozen=True)
class Scope:
    """The commits the notes are about, newest first. `since` is the tag before them, None without one."""

    project: str
    version: str
    date: str
    since: str | None
    commits: list[str]
    left_out: int


@dataclass(frozen=True)
class Change:
    """What one commit did. The figures are None where a shallow clone does not know the commit's parent."""

    commit: str
    subject: str
    author: str
    kind: str
    breaking: bool
    files: int | None
    added: int | None
    removed: int | None


@dataclass(frozen=True)
class Draft:
    """What a person is asked to approve, and may edit."""

    title: str
    text: str


@dataclass(frozen=True)
class Notes:
    """The result: the file that was written."""

    file: str
    title: str
    lines: int


@app.job(max_retries=3)
async def release_notes(ctx: JobContext, brief: Brief) -> Notes:
    """Each `ctx.step` runs until it has returned once; after that every later attempt gets the record of it."""
    scope = await ctx.step("range", find_range, brief.repository, brief.limit)
    changes = []
    for number, commit in enumerate(scope.commits):
        await ctx.progress(number / len(scope.commits), f"reading commit {number + 1} of {len(scope.commits)}")
        changes.append(await ctx.options(key=commit[:10]).step("read", read_commit, brief.repository, commit))
    await ctx.progress(1, "drafting")
    groups = await ctx.step("group", group, changes)
    draft = await ctx.step("draft", write_draft, scope, groups)
    decision = await ctx.approve("publish", title=f"Write these release notes to {brief.output}?", payload=draft)
    # Writing the same text to the same file again does no harm: after a crash in the middle it is simply written again.
    write = ctx.options(on_unknown="retry")
    return await write.tool("write", write_file, brief.output, decision.payload)


# -- the steps ------------------------------------------------------------------------------------------------------------


def witnessed(fn: Callable[P, R]) -> Callable[P, R]:
    """Leave a line in the file RELEASE_NOTES_WITNESS whenever `fn` really runs: `perdure demo` proves its point with it.
    RELEASE_NOTES_PACE is a pause in seconds, so that one can watch."""

    @functools.wraps(fn)
    def running(*args: P.args, **kwargs: P.kwargs) -> R:
        if witness := os.environ.get("RELEASE_NOTES_WITNESS"):
            with Path(witness).open("a", encoding="utf-8") as file:
                file.write(f"{idempotency_key()} {os.getpid()} {fn.__name__}\n")
        time.sleep(float(os.environ.get("RELEASE_NOTES_PACE") or 0))
        return fn(*args, **kwargs)

    return running


@witnessed
def find_range(repository: str, limit: int) -> Scope:
    """The commits since the last tag, or up to the tag that HEAD carries; without any tag the newest ones."""
    if not Path(repository).is_dir():
        raise Fail(f"{repository} is not a directory")
    if not ask_git(repository, "rev-parse", "--git-dir"):
        raise Fail(f"{repository} is not a git repository: {git_complaint(repository)}")
    if not ask_git(repository, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"):
        raise Fail(f"the repository {repository} has no commits yet: there is nothing to write about")
    here = ask_git(repository, "tag", "--points-at", "HEAD", "--sort=-version:refname").splitlines()
    since = ask_git(repository, "describe", "--tags", "--abbrev=0", "HEAD^" if here else "HEAD") or None
    span = ["HEAD"] if since is None else ["HEAD", f"^refs/tags/{since}"]
    commits = git(repository, "rev-list", "--no-merges", *span).split() or git(repository, "rev-list", *span).split()
    origin = ask_git(repository, "config", "--get", "remote.origin.url")
    place = origin or ask_git(repository, "rev-parse", "--show-toplevel") or repository
    return Scope(
        project=re.split(r"[/:\\]", place.rstrip("/"))[-1].removesuffix(".git") or "project",
        version=here[0] if here else "Unreleased",
        date=git(repository, "show", "-s", "--format=%cs", "HEAD").strip(),
        since=since,
        commits=commits[:limit],
        left_out=len(commits[limit:]),
    )


@witnessed
def read_commit(repository: str, commit: str) -> Change:
    """One commit: its message, and what its diff touches."""
    shown = git(repository, "show", "-s", "--format=%an%x00%s%x00%b", commit)
    author, subject, body = (printable(part) for part in shown.split("\0", 2))
    shallow = Path(repository, git(repository, "rev-parse", "--git-path", "shallow").strip())
    if shallow.is_file() and commit in shallow.read_text(encoding="utf-8").split():
        stats = None  # the clone ends here: a diff would show the whole tree as added
    else:
        stats = git(repository, "show", "--format=", "--first-parent", "-m", "--numstat", "-z", "--no-renames", commit)
    touched = [line.split("\t", 2) for line in (stats or "").strip("\n").split("\0") if line.count("\t") >= 2]
    kind, text = classify(subject, [path for _, _, path in touched])
    return Change(
        commit=commit,
        subject=text[:200] or "(no message)",
        author=author or "unknown",
        kind=kind,
        breaking=bool(re.match(r"\w+(\([^)]*\))?!:", subject)) or "BREAKING CHANGE" in body,
        files=None if stats is None else len(touched),
        added=None if stats is None else sum(int(added) for added, _, _ in touched if added != "-"),
        removed=None if stats is None else sum(int(removed) for _, removed, _ in touched if removed != "-"),
    )


KINDS = {  # section title: prefixes of Conventional Commits, and first words of other messages
    "Added": "feat feature add adds added introduce introduces support supports implement implements allow new",
    "Changed": "change changes update updates improve improves use make revert",
    "Fixed": "fix fixes fixed bugfix correct repair resolve prevent handle avoid",
    "Faster": "perf speed faster optimise optimize",
    "Removed": "remove removes removed drop drops delete deprecate",
    "Documentation": "doc docs document readme changelog example examples",
    "Internal": "test tests ci build chore refactor style lint format bump rename move merge release clean wip deps",
}


def classify(subject: str, paths: list[str]) -> tuple[str, str]:
    """The section a commit belongs to, and its subject without the prefix that said so."""
    prefix = re.match(r"(\w+)(\([^)]*\))?!?:\s+(.+)", subject)
    kind = section_of(prefix[1]) if prefix else None
    if prefix and kind:
        subject = prefix[3]
    elif prefix:  # `http: fix a leak`: the prefix names a place
        kind = section_of(prefix[3])
    kind = kind or section_of(subject)
    if kind is None:
        folders = {PurePosixPath(path).parts[0] for path in paths}
        if folders and all(folder in ("docs", "doc") or folder.endswith((".md", ".rst")) for folder in folders):
            kind = "Documentation"
        elif folders and folders <= {"tests", "test", ".github", ".ci"}:
            kind = "Internal"
    return kind or "Changed", subject[:1].upper() + subject[1:]


def section_of(text: str) -> str | None:
    """The section that the first word of a text stands for."""
    word = re.split(r"\W", text, maxsplit=1)[0].lower()
    return next((title for title, words in KINDS.items() if word in words.split()), None)


@witnessed
def group(changes: list[Change]) -> dict[str, list[Change]]:
    """The changes by section, in the order of the notes; what breaks comes first."""
    sections = {title: [c for c in changes if c.kind == title and not c.breaking] for title in KINDS}
    sections = {"Breaking changes": [c for c in changes if c.breaking], **sections}
    return {title: found for title, found in sections.items() if found}


@witnessed
def write_draft(scope: Scope, groups: dict[str, list[Change]]) -> Draft:
    """The notes as Markdown: the same text for the same commits."""
    changes = [change for section in groups.values() for change in section]
    people = len({change.author for change in changes})
    known = [c for c in changes if c.files is not None]
    title = f"{scope.project} {scope.version}"
    said = f"{counted(len(changes), 'commit')} by {counted(people, 'person', 'people')}"
    said += f" since {scope.since}" if scope.since else ""
    said += (
        f", {counted(sum(c.added or 0 for c in known), 'line')} added, {sum(c.removed or 0 for c in known)} removed."
    )
    if scope.left_out:
        said += f" {counted(scope.left_out, 'older commit')} left out."
    lines = [f"# {title} ({scope.date})", "", said]
    for section, found in groups.items():
        lines += ["", f"## {section}", "", *(f"- {change.subject} ({change.commit[:10]})" for change in found)]
    return Draft(title, "\n".join(lines) + "\n")


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 commit`, `2 commits`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


@witnessed
def write_file(path: str, draft: Draft) -> Notes:
    """The side effect. The file appears whole or not at all."""
    target = Path(path)
    if not target.parent.is_dir():
        raise Fail(f"cannot write {path}: {target.parent} is not a directory")
    whole = target.with_name(f".{target.name}.{idempotency_key()[:8]}")
    whole.write_text(draft.text, encoding="utf-8")
    whole.replace(target)
    return Notes(path, draft.title, len(draft.text.splitlines()))


# -- git ------------------------------------------------------------------------------------------------------------------

OPTIONS = ("-c", "log.showSignature=false", "-c", "i18n.logOutputEncoding=UTF-8", "-c", "core.quotePath=false")


def run_git(repository: str, *command: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in the repository; never asks anything, and is not misled by a hook's GIT_DIR."""
    environment = {k: v for k, v in os.environ.items() if k not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")}
    environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_PAGER": "cat"}
    try:
        return subprocess.run(
            ["git", "-C", repository, *OPTIONS, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=60,
            check=False,
        )
    except FileNotFoundError:
        raise Fail("git is not installed on this worker") from None


def git(repository: str, *command: str) -> str:
    """What git prints. An error may be worth another attempt: it is raised, and the job's policy decides."""
    done = run_git(repository, *command)
    if done.returncode:
        raise RuntimeError(f"git {command[0]} failed: {decoded(done.stderr).strip()}")
    return decoded(done.stdout)


def ask_git(repository: str, *command: str) -> str:
    """What git prints, stripped; empty where it says no."""
    done = run_git(repository, *command)
    return "" if done.returncode else decoded(done.stdout).strip()


def git_complaint(repository: str) -> str:
    """Why git refuses to look into a directory."""
    lines = decoded(run_git(repository, "rev-parse", "--git-dir").stderr).strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else "git does not say why"


def decoded(output: bytes) -> str:
    """Git passes on whatever bytes a message was written in: most are UTF-8, the rest is read as Windows-1252."""
    try:
        return output.decode()
    except UnicodeDecodeError:
        return output.decode("cp1252", errors="replace")


def printable(text: str) -> str:
    """Text that cannot play tricks on a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text).strip()


# -- as a program of its own: a client and a worker in one process --------------------------------------------------------


def parse(arguments: list[str]) -> tuple[Brief, bool]:
    """The brief, and whether to approve without asking."""
    parser = argparse.ArgumentParser(description="Write release notes from a git repository.")
    parser.add_argument("repository", nargs="?", default=".", help="default: the current directory")
    parser.add_argument("--output", default="RELEASE_NOTES.md", help="the file to write (default: %(default)s)")
    parser.add_argument("--limit", type=int, default=30, help="at most so many commits (default: %(default)s)")
    parser.add_argument("--yes", action="store_true", help="approve the draft without asking")
    given = parser.parse_args(arguments)
    return Brief(str(Path(given.repository).resolve()), str(Path(given.output).resolve()), given.limit), given.yes


def say(text: str) -> None:
    """A line, at once: also into a pipe, and also if this process is killed in the next moment."""
    print(text, flush=True)


async def main(brief: Brief, *, yes: bool) -> int:
    """Enqueue the job, or go on with the one that was interrupted; work until it is finished."""
    async with app:
        open_jobs = await app.jobs.list(
            kind="release_notes", status=["PENDING", "RUNNING", "RETRY", "WAITING_FOR_APPROVAL"]
        )
        same = [job for job in open_jobs.items if job.payload == asdict(brief)]
        handle = app.jobs.handle(same[0].id) if same else await app.enqueue(release_notes, brief)
        say(f"{'going on with' if same else 'enqueued'} job …{(await handle.get()).short_id}")
        worker = await app.worker(lease="5s")  # short: after a kill the default of 30 s would be long to wait for
        working = asyncio.create_task(worker.run())
        try:
            return await follow(handle, yes=yes)
        finally:
            worker.stop()
            await working


async def follow(handle: Handle[Notes], *, yes: bool) -> int:
    """Print what the job records, answer its question, and say how it ended."""
    async for event in handle.watch():
        if event.type in ("node_finished", "tool_returned"):
            say(f"  recorded {event.payload['key']}")
        elif event.type == "approval_requested":
            approval = await app.approvals.get(event.payload["approval"])
            if approval.status != "PENDING":
                continue
            say(f"\n{approval.payload['text']}")
            if not yes and not sys.stdin.isatty():
                say(f"{approval.title}\nIt waits for an answer: perdure approvals approve {approval.short_id}")
                return 1
            if yes or (await answer(f"{approval.title} [Y/n] ")) in ("", "y", "yes"):
                await app.approve(approval.id)
            else:
                await app.deny(approval.id, comment="not like this")
    try:
        notes = await app.jobs.result(handle.id, output_type=Notes)
    except (JobFailed, JobCancelled) as error:
        print(error.message, file=sys.stderr)
        return 1
    say(f"wrote {notes.file}")
    return 0


async def answer(question: str) -> str:
    """A line from the terminal, without stopping the worker for it."""
    print(question, end="", flush=True)
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    loop.add_reader(sys.stdin, lambda: None if line.done() else line.set_result(sys.stdin.readline()))
    try:
        return (await line).strip().lower()
    finally:
        loop.remove_reader(sys.stdin)


if __name__ == "__main__":
    wanted, approve_it = parse(sys.argv[1:])
    try:
        sys.exit(asyncio.run(main(wanted, yes=approve_it)))
    except KeyboardInterrupt:
        sys.exit("\nstopped; start it again and it goes on where it was")
