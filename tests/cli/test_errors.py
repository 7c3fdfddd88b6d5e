"""One table from errors to exit codes, and how an error is printed."""

import json
import pkgutil
import traceback
from importlib import import_module
from pathlib import Path

import pytest

import perdure as package
from perdure.chaos.errors import ChaosFailed
from perdure.cli import errors as command_line
from perdure.cli.error_help import ADVICE
from perdure.cli.errors import EXIT_CODES, Exit, exit_code, report
from perdure.cli.usage_error import Usage
from perdure.model import errors
from perdure.model.fsck_faults import FAULTS
from perdure.model.states import Status
from perdure.operations.errors import NoWorker
from tests.cli.conftest import Perdure, a_job, program

CODES: dict[type[errors.PerdureError], int] = {
    errors.PerdureError: 1,
    errors.ConfigError: 2,
    errors.MalformedUrl: 2,
    errors.ExtraMissing: 2,
    errors.PortTaken: 2,
    errors.BlobDirUnusable: 2,
    errors.StoreError: 1,
    errors.StoreUnreachable: 10,
    errors.TooManyHung: 11,
    errors.FileReplaced: 1,
    errors.SchemaMissing: 1,
    errors.ForeignDatabase: 1,
    errors.SchemaOutdated: 1,
    errors.SchemaTooNew: 1,
    errors.MigrationChanged: 1,
    errors.InvalidInput: 2,
    errors.InvalidBudget: 2,
    errors.EmptyQuery: 2,
    errors.UnknownScope: 2,
    errors.TextTooLong: 2,
    errors.MixedDimensions: 2,
    errors.EmbedderUnavailable: 1,
    errors.NotJson: 2,
    errors.TooLarge: 2,
    errors.InvalidPriority: 2,
    errors.NegativeDelay: 2,
    errors.UnsupportedTransaction: 2,
    errors.NoTransaction: 2,
    errors.OtherDatabase: 2,
    errors.WaitCircle: 2,
    errors.InvalidTask: 2,
    errors.UnknownTool: 2,
    errors.EmptyPrompt: 2,
    errors.PromptTooLarge: 2,
    errors.InvalidModel: 2,
    errors.UnsafePath: 2,
    errors.InvalidOutputSpec: 2,
    errors.FilesTooLarge: 2,
    errors.InvalidAccount: 2,
    errors.SecretByValue: 2,
    errors.NotFound: 3,
    errors.JobNotFound: 3,
    errors.ApprovalNotFound: 3,
    errors.WorkerNotFound: 3,
    errors.StepNotFound: 3,
    errors.AccountNotFound: 3,
    errors.AgentNotFound: 3,
    errors.FileNotFound: 3,
    errors.ContentMissing: 3,
    errors.ContentDamaged: 1,
    errors.AmbiguousId: 2,
    errors.Conflict: 5,
    errors.IllegalTransition: 5,
    errors.VersionMismatch: 5,
    errors.JobLeased: 5,
    errors.JobPruned: 5,
    errors.IdempotencyConflict: 5,
    errors.UniqueConflict: 5,
    errors.AlreadyDecided: 5,
    errors.ApprovalExpired: 5,
    errors.ApprovalChanged: 5,
    errors.SignalConflict: 5,
    errors.SignalTooLate: 5,
    errors.RealJobs: 5,
    errors.AccountExists: 5,
    errors.AccountDisabled: 5,
    errors.AgentExists: 5,
    errors.AgentPaused: 5,
    errors.AgentBusy: 5,
    errors.AgentInUse: 5,
    errors.SessionChanged: 5,
    errors.EntrySuperseded: 5,
    errors.NotPermitted: 4,
    errors.WrongToken: 4,
    errors.NotAssigned: 4,
    errors.HandlerError: 1,
    errors.UnknownHandler: 2,
    errors.DuplicateHandler: 1,
    errors.StepChanged: 1,
    errors.RecordedFailure: 1,
    errors.UnknownOutcome: 1,
    errors.NotifyFailed: 1,
    errors.LeaseLost: 1,
    errors.ToolRefused: 1,
    errors.ToolMissing: 1,
    errors.ToolUnsupported: 1,
    errors.SecretMissing: 1,
    errors.SessionMissing: 1,
    errors.SandboxTooWeak: 1,
    errors.RepositoryRefused: 1,
    errors.DangerRefused: 1,
    errors.JobError: 1,
    errors.JobFailed: 6,
    errors.JobCancelled: 7,
    errors.WaitInsideJob: 1,
    errors.WaitTimeout: 8,
    errors.Verdict: 1,
    errors.Retry: 1,
    errors.Fail: 1,
    errors.Snooze: 1,
    errors.SignalTimeout: 1,
    errors.ReplyTimeout: 1,
    errors.BudgetExceeded: 1,
    errors.ToolNotAllowed: 1,
    errors.ApprovalRuleNotFound: 3,
    errors.ReplayDiverged: 1,
    errors.InvalidExport: 2,
    errors.ChildError: 1,
    errors.ChildFailed: 1,
    errors.ChildCancelled: 1,
    errors.Denied: 7,
    Usage: 2,
    command_line.AppNotFound: 2,
    command_line.NotConfirmed: 2,
    command_line.Declined: 1,
    command_line.ApprovalNeeded: 9,
    command_line.DemoFailed: 1,
    NoWorker: 1,
    ChaosFailed: 1,
    command_line.Bug: 1,
}


def family(cls: type[errors.PerdureError]) -> set[type[errors.PerdureError]]:
    return {cls}.union(*(family(c) for c in cls.__subclasses__()))


def test_every_error_has_an_exit_code() -> None:
    for module in pkgutil.walk_packages(package.__path__, "perdure."):
        if module.name != "perdure.__main__":
            import_module(module.name)
    ours = {c for c in family(errors.PerdureError) if c.__module__.startswith("perdure.")}
    assert ours == set(CODES)


@pytest.mark.parametrize(("cls", "code"), CODES.items(), ids=lambda v: getattr(v, "__name__", str(v)))
def test_exit_code_of(cls: type[errors.PerdureError], code: int) -> None:
    error = cls.__new__(cls)
    error.__dict__["kind"] = None  # where JobFailed keeps the job's error_kind
    assert exit_code(error) == code


def test_the_table_uses_the_documented_codes_only() -> None:
    assert {int(c) for c in Exit} == {*range(12), 130, 141, 143}
    assert set(EXIT_CODES.values()) <= set(Exit)


def test_a_job_that_was_denied_ends_as_denied() -> None:
    assert exit_code(errors.JobFailed(a_job(status=Status.FAILED, error_kind="fatal"))) == 6
    assert exit_code(errors.JobFailed(a_job(status=Status.FAILED, error_kind="denied"))) == 7


def test_what_happened_why_and_what_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(errors.JobNotFound("no job has the id 42", hint="perdure jobs ls")) == 3
    assert capsys.readouterr().err == "error: no job has the id 42\n  perdure jobs ls  [perdure help job-not-found]\n"
    report(errors.PerdureError("it broke"))
    assert capsys.readouterr().err == "error: it broke  [perdure help error]\n"


def test_a_traceback_says_what_next_as_well() -> None:
    report = "".join(traceback.format_exception(errors.JobNotFound("no job has the id 42", hint="perdure jobs ls")))
    assert report == (
        "perdure.model.errors.JobNotFound: no job has the id 42\nperdure jobs ls  [perdure help job-not-found]\n"
    )
    assert str(errors.JobNotFound("no job has the id 42", hint="perdure jobs ls")) == "no job has the id 42"


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    report(errors.StoreUnreachable("away", hint="wait"), as_json=True)
    assert json.loads(capsys.readouterr().err) == {
        "title": "The database does not answer; trying again later may help.",
        "detail": "away",
        "code": "store-unreachable",
        "hint": "wait",
        "help": "perdure help store-unreachable",
        "retryable": True,
        "exit_code": 10,
    }


def test_messages_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    report(errors.PerdureError("\x1b[2J\u202egone"))
    assert capsys.readouterr().err.startswith("error: \\x1b[2J\\u202egone")


def test_a_bug_is_called_one(perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("perdure.cli.output.Output.one", broken)
    done = perdure("version", code=1)
    assert "this is a bug in perdure: KeyError: 'x'" in done.err
    assert "Traceback" not in done.err
    assert "[perdure help bug]" in done.err
    assert "Traceback" in perdure("version", "-v", code=1).err
    assert json.loads(perdure("version", "--json", code=1).err)["code"] == "bug"


@pytest.mark.parametrize(
    "args", [("-o", "json"), ("--output=json",), ("-ojson",), ("--json",), ("--output", "jsonl")], ids=" ".join
)
def test_json_mode_is_known_even_where_the_line_cannot_be_read(perdure: Perdure, args: tuple[str, ...]) -> None:
    assert json.loads(perdure("jobs", "ls", "--nonsense", *args, code=2).err)["code"] == "usage"
    assert json.loads(perdure(*args, "jobs", "nonsense", code=2).err)["exit_code"] == 2


def test_json_mode_by_variable(perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_OUTPUT", "json")
    assert json.loads(perdure("jobs", "get", "aaaaaaaa", code=3).err.splitlines()[-1])["code"] == "job-not-found"


def test_colour_of_errors(perdure: Perdure) -> None:
    assert "\x1b[1;31merror:" in perdure("jobs", "nope", "--color", "always", code=2).err
    assert "\x1b[1;31merror:" in perdure("jobs", "nope", "--color=always", code=2).err
    assert "\x1b" not in perdure("jobs", "nope", code=2).err


@pytest.mark.parametrize("cls", [c for c in CODES if "code" in vars(c)], ids=lambda cls: cls.__name__)
def test_help_says_what_an_error_means_and_what_to_do(perdure: Perdure, cls: type[errors.PerdureError]) -> None:
    page = perdure("help", cls.code).out
    assert page.startswith(f"{cls.code} (exit code {CODES[cls]}, {cls.__name__} in Python)\n\n")
    facts = perdure("help", cls.code, "-o", "json").json
    assert facts["means"] == " ".join((cls.__doc__ or "").split("\n\n")[0].split())
    assert facts["exit_code"] == CODES[cls]
    assert " ".join(page.split()).endswith(facts["advice"])
    assert "](" not in page
    assert ".md" not in page, "who has only installed perdure has no pages"


@pytest.mark.parametrize("code", ["no-worker", "chaos-failed", "demo-failed"])
def test_help_knows_errors_of_modules_that_no_other_command_loads(code: str) -> None:
    assert program("help", code).out.startswith(f"{code} (exit code 1, ")


@pytest.mark.parametrize("code", FAULTS)
def test_help_says_what_a_fault_means_and_what_becomes_of_it(perdure: Perdure, code: str) -> None:
    page = " ".join(perdure("help", code).out.split())
    assert page.startswith(f"{code} (a {'note' if code == 'lease-overdue' else 'fault'} that perdure fsck finds) ")
    facts = perdure("help", code, "-o", "json").json
    kind = FAULTS[code]
    assert (facts["code"], facts["means"], facts["repair"]) == (code, kind.says, kind.repair)
    assert kind.says[1:] in page
    assert f"`perdure fsck --fix` {'repairs it' if kind.repair else 'does not repair it'}" in page
    assert kind.advice[1:] in page


def test_no_error_and_fault_have_the_same_code() -> None:
    assert not ADVICE.keys() & FAULTS.keys()


def test_help_knows_bugs_and_no_error_more_than_there_are(perdure: Perdure) -> None:
    assert set(ADVICE) == {c.code for c in CODES}
    assert "report it" in perdure("help", "bug").out


def test_help_of_a_command(perdure: Perdure) -> None:
    assert perdure("help", "jobs", "ls").out == perdure("jobs", "ls", "--help").out
    assert perdure("help", "db").out == perdure("db", "--help").out
    assert perdure("help").out == perdure("--help").out


def test_help_on_what_is_not_there(perdure: Perdure) -> None:
    assert "did you mean job-not-found?" in perdure("help", "job-not-fond", code=2).err
    assert "did you mean queue-missing?" in perdure("help", "queue-mising", code=2).err
    assert "no command and no code 'jobs nope'" in perdure("help", "jobs", "nope", code=2).err


class TestDatabase:
    """Errors about where the jobs are."""

    def test_no_such_scheme(self, perdure: Perdure) -> None:
        assert "[perdure help malformed-url]" in perdure("jobs", "ls", "--db", "mysql://x", code=2).err

    def test_the_database_does_not_answer(self, perdure: Perdure) -> None:
        done = perdure("jobs", "ls", "--db", "postgresql://nobody@127.0.0.1:1/x", code=10)
        assert "[perdure help store-unreachable]" in done.err

    def test_a_setting_that_makes_no_sense(self, perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PERDURE_CONCURRENCY", "many")
        done = perdure("jobs", "ls", code=2)
        assert "concurrency (env PERDURE_CONCURRENCY) is invalid" in done.err

    def test_an_output_that_is_none(self, perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PERDURE_OUTPUT", "xml")
        assert "PERDURE_OUTPUT is 'xml'" in perdure("jobs", "ls", code=2).err

    def test_memory_says_that_it_forgets(self, perdure: Perdure) -> None:
        assert "lost at its end" in perdure("jobs", "ls", "--db", "memory:").err

    def test_looking_makes_no_database(self, perdure: Perdure) -> None:
        done = perdure("jobs", "ls")
        assert "there is no database at perdure.db yet" in done.err
        assert "no jobs yet" in done.err
        assert perdure("jobs", "get", "43149ff1", code=3).out == ""
        assert not Path("perdure.db").exists()
