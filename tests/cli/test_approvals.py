"""`perdure approvals`."""

import asyncio
import json
from pathlib import Path

import pytest

from perdure.model.ids import uuid7
from perdure.store.open import open_store
from tests.cli.conftest import Perdure, program


def asked(perdure: Perdure, kind: str = "asks", *args: str) -> tuple[str, str]:
    """A job that waits for a person: its id and its approval's."""
    job = perdure.ran(kind, *(args or (("--input", '"a draft"') if kind == "asks" else ())))
    approval = perdure("approvals", "ls", "--job", job, "-o", "id").out.strip()
    return job, approval


class TestLook:
    """approvals ls and get."""

    def test_ls(self, anywhere: Perdure) -> None:
        assert "no approval is pending" in anywhere("approvals", "ls").err
        job, approval = asked(anywhere)
        done = anywhere("approvals", "ls")
        assert done.lines[0].split() == ["STATUS", "APPROVAL", "JOB", "CREATED", "EXPIRES", "ASSIGNEES"]
        assert f"✋ PENDING  …{approval[-8:]} Publish this?  …{job[-8:]} asks" in done.lines[1]
        assert f"perdure approvals approve {approval[-8:]}" in done.err
        item = anywhere("approvals", "ls", "--json").json["items"][0]
        assert (item["id"], item["job_id"], item["status"], item["payload"]) == (
            approval,
            job,
            "PENDING",
            {"draft": "a draft"},
        )

    def test_filters(self, perdure: Perdure) -> None:
        _, mine = asked(perdure)
        _, anns = asked(perdure, "asks_ann")

        def listed(*args: str) -> list[str]:
            return perdure("approvals", "ls", "-o", "id", *args).lines

        assert listed() == [anns, mine]
        assert listed("--mine") == [mine]
        assert listed("--assignee", "ann") == [anns, mine]
        perdure("approvals", "deny", mine)
        assert listed() == [anns]
        assert listed("--status", "denied") == [mine]
        assert listed("--status", "all") == [anns, mine]
        assert "no approval matches" in perdure("approvals", "ls", "--status", "expired").err
        assert "unknown approval status" in perdure("approvals", "ls", "--status", "nope", code=2).err

    def test_get_shows_everything_that_would_be_approved(self, anywhere: Perdure) -> None:
        long = json.dumps("line\n" * 100)
        job, approval = asked(anywhere, "asks", "--input", long)
        done = anywhere("approvals", "get", approval[-8:])
        assert done.out.count("line") == 100
        assert "Publish this?" in done.out
        assert "then the job fails" in done.out
        assert "anyone" in done.out
        assert "approvals deny" in done.err
        assert anywhere("approvals", "get", job, "--json").only["id"] == approval

    @pytest.mark.parametrize("verb", ["get", "approve", "deny", "token"])
    def test_unknown_ids(self, perdure: Perdure, verb: str) -> None:
        perdure.start("naps")
        assert "[perdure help approval-not-found]" in perdure("approvals", verb, str(uuid7()), code=3).err


class TestDecide:
    """approvals approve and deny."""

    def test_approve(self, anywhere: Perdure) -> None:
        job, approval = asked(anywhere)
        done = anywhere("approvals", "approve", approval[-8:], "--comment", "ok, small diff")
        assert done.out == f"✓ APPROVED  …{approval[-8:]} Publish this?\n"
        assert f"perdure jobs watch {job[-8:]}" in done.err
        anywhere.work()
        assert anywhere("jobs", "get", job, "--fields", "result").out == "published a draft\n"
        decided = anywhere("approvals", "get", approval, "--json").only
        assert (decided["status"], decided["comment"], decided["decided_via"]) == ("APPROVED", "ok, small diff", "cli")
        for id in (approval, job):
            assert "[perdure help already-decided]" in anywhere("approvals", "approve", id, code=5).err
        assert anywhere("approvals", "get", job, "-o", "id").lines == [approval]

    def test_approve_with_changes(self, perdure: Perdure, place: Path) -> None:
        (place / "better.json").write_text('{"draft": "better"}')
        job, approval = asked(perdure)
        assert "(edited)" in perdure("approvals", "approve", approval, "--edit", "@better.json").out
        perdure.work()
        assert perdure("jobs", "get", job, "--fields", "result").out == "published better\n"
        page = perdure("approvals", "get", approval).out
        assert page.index("What was asked") < page.index("What was approved instead")

    def test_deny(self, anywhere: Perdure) -> None:
        job, approval = asked(anywhere)
        assert "✕ DENIED" in anywhere("approvals", "deny", job, "--reason", "too early").out
        assert anywhere("jobs", "get", job, "--fields", "status,error_kind").lines == ["FAILED", "denied"]
        assert "too early" in anywhere("approvals", "get", approval).out

    def test_who_may(self, anywhere: Perdure) -> None:
        _, approval = asked(anywhere, "asks_ann")
        done = anywhere("approvals", "approve", approval, code=4)
        assert "[perdure help not-assigned]" in done.err
        assert "--by" in done.err
        assert (
            anywhere("approvals", "approve", approval, "--by", "ann", "--json").json["items"][0]["decided_by"] == "ann"
        )

    def test_only_what_was_looked_at(self, perdure: Perdure) -> None:
        _, approval = asked(perdure)
        digest = perdure("approvals", "get", approval, "--fields", "payload_digest").out.strip()
        done = perdure("approvals", "approve", approval, "--digest", "0" * 64, code=5)
        assert "[perdure help approval-changed]" in done.err
        perdure("approvals", "approve", approval, "--digest", digest)

    def test_several(self, perdure: Perdure) -> None:
        ids = [asked(perdure)[1] for _ in range(2)]
        assert "Approve 2 approvals?" in perdure("approvals", "approve", *ids, code=2).err
        assert [a["id"] for a in perdure("approvals", "get", *ids, "--json").json["items"]] == ids
        done = perdure("approvals", "approve", "-", "--yes", "-o", "id", stdin="\n".join(ids))
        assert done.lines == ids

    @pytest.mark.parametrize(
        ("args", "says"),
        [
            ((), "no id is given. Give an approval"),
            (("aaaaaaaa", "--edit", "x"), "--edit: that is not JSON"),
            (("aaaaaaaa", "--outcome", "maybe"), "--outcome is happened or retry"),
            (("aaaaaaaa", "--outcome", "retry", "--edit", "1"), "--outcome and --edit exclude each other"),
            (("aaaaaaaa", "--result", "1"), "--result goes with --outcome happened"),
            (("aaaaaaaa", "--outcome", "happened"), "--outcome happened needs what it returned"),
            (("aaaaaaaa", "--token", "env:T"), "not both"),
            (("--token", "pdt_secret"), "takes a reference, not the secret itself"),
            (("--token", "env:NOWHERE"), "it is empty"),
            (("--token", "@nowhere"), "cannot read 'nowhere'"),
        ],
        ids=lambda v: " ".join(v) if isinstance(v, tuple) else "",
    )
    def test_what_makes_no_sense(self, perdure: Perdure, args: tuple[str, ...], says: str) -> None:
        assert says in perdure("approvals", "approve", *args, code=2).err


class TestToken:
    """approvals token, and deciding by it."""

    def test_fresh_token(self, anywhere: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
        _, approval = asked(anywhere)
        first = anywhere("approvals", "token", approval).out.strip()
        done = anywhere("approvals", "token", approval, "--json")
        assert first.startswith("pdt_")
        assert done.json["approval_id"] == approval
        monkeypatch.setenv("T", first)
        assert "[perdure help wrong-token]" in anywhere("approvals", "approve", "--token", "env:T", code=4).err
        assert "APPROVED" in anywhere("approvals", "approve", "--token", "-", stdin=done.json["token"]).out
        assert "[perdure help already-decided]" in anywhere("approvals", "token", approval, code=5).err

    def test_it_is_shown_once(self, perdure: Perdure) -> None:
        job, approval = asked(perdure)
        done = perdure("approvals", "token", approval)
        token = done.out.strip()
        assert "shown only now" in done.err
        everything = (
            perdure("jobs", "get", job, "--json", "--show", "all").out
            + perdure("approvals", "get", approval, "--json").out
        )
        assert token not in everything
        perdure("approvals", "deny", "--token", "-", stdin=token + "\n")


QUESTION = """
from perdure import App, JobContext
import os

app = App()

@app.job
async def pays(ctx: JobContext) -> str:
    return await ctx.tool("pay", pay)

def pay() -> str:
    if not os.environ.get("PAID"):
        os._exit(9)
    return "paid"
"""


async def take_over() -> None:
    """What any worker does for the jobs of a dead one."""
    store = await open_store("sqlite:///perdure.db")
    while not await store.leases.reap(worker_id="the living"):
        await asyncio.sleep(0.1)
    await store.close()


def test_questions_about_what_a_crash_cut_off(perdure: Perdure, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "payer.py").write_text(QUESTION)
    app = ("--app", "payer:app")
    job = perdure("jobs", "start", "pays", *app, "-o", "id").out.strip()
    assert program("worker", "start", *app, "--once", "--lease", "1s").code == 9
    monkeypatch.setenv("PAID", "1")
    assert "◐ running  pay   tool" in perdure("jobs", "steps", job).out
    asyncio.run(take_over())
    assert "? cut off  pay   tool" in perdure("jobs", "steps", job).out
    assert program("worker", "start", *app, "--once").code == 0
    approval = perdure("approvals", "ls", "-o", "id").out.strip()
    for page in (("approvals", "get", approval), ("approvals", "ls"), ("jobs", "get", job)):
        assert "--outcome happened --result JSON" in perdure(*page).err, page
    refused = perdure("approvals", "approve", approval, code=2).err
    assert "approving needs an answer" in refused
    assert "--outcome happened --result JSON" in refused
    perdure("approvals", "approve", approval, "--outcome", "happened", "--result", '"paid by hand"')
    assert program("worker", "start", *app, "--once").code == 0
    assert perdure("jobs", "get", job, "--fields", "result").out == "paid by hand\n"
