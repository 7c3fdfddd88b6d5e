"""Durable jobs for AI agents and coding CLIs, on your PostgreSQL or an embedded SQLite file.

from perdure import App, JobContext

app = App()

@app.job
async def greet(ctx: JobContext, name: str) -> str:
    return await ctx.step("say", "hello {}".format, name)

# await app.enqueue(greet, "world"); then run a worker: perdure worker start --app module:app
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from perdure.version import __version__

if TYPE_CHECKING:
    from perdure.app import App
    from perdure.model.actions import Action
    from perdure.model.agents import AgentInstance, AgentStatus
    from perdure.model.approval_rules import ApprovalRule
    from perdure.model.approvals import Approval, ApprovalStatus
    from perdure.model.batches import Batch, BatchJob
    from perdure.model.budgets import Budget
    from perdure.model.comparison import JobDiff
    from perdure.model.conversation import ConversationMessage, CutMessage, Fitted
    from perdure.model.errors import (
        AccountDisabled,
        AccountExists,
        AccountNotFound,
        AgentBusy,
        AgentExists,
        AgentInUse,
        AgentNotFound,
        AgentPaused,
        AlreadyDecided,
        AmbiguousId,
        ApprovalChanged,
        ApprovalExpired,
        ApprovalNotFound,
        ApprovalRuleNotFound,
        BlobDirUnusable,
        BudgetExceeded,
        ChildCancelled,
        ChildError,
        ChildFailed,
        ConfigError,
        Conflict,
        ContentDamaged,
        ContentMissing,
        DangerRefused,
        Denied,
        DuplicateHandler,
        EmbedderUnavailable,
        EmptyPrompt,
        EmptyQuery,
        EntrySuperseded,
        ExtraMissing,
        Fail,
        FileNotFound,
        FileReplaced,
        FilesTooLarge,
        ForeignDatabase,
        HandlerError,
        IdempotencyConflict,
        IllegalTransition,
        InvalidAccount,
        InvalidBudget,
        InvalidExport,
        InvalidInput,
        InvalidModel,
        InvalidOutputSpec,
        InvalidPriority,
        InvalidTask,
        JobCancelled,
        JobError,
        JobFailed,
        JobLeased,
        JobNotFound,
        JobPruned,
        LeaseLost,
        MalformedUrl,
        MigrationChanged,
        MixedDimensions,
        NegativeDelay,
        NotAssigned,
        NotFound,
        NotifyFailed,
        NotJson,
        NotPermitted,
        NoTransaction,
        OtherDatabase,
        PerdureError,
        PortTaken,
        PromptTooLarge,
        RealJobs,
        RecordedFailure,
        ReplayDiverged,
        ReplyTimeout,
        RepositoryRefused,
        Retry,
        SandboxTooWeak,
        SchemaMissing,
        SchemaOutdated,
        SchemaTooNew,
        SecretByValue,
        SecretMissing,
        SessionChanged,
        SessionMissing,
        SignalConflict,
        SignalTimeout,
        SignalTooLate,
        Snooze,
        StepChanged,
        StepNotFound,
        StoreError,
        StoreUnreachable,
        Suspended,
        TextTooLong,
        TooLarge,
        ToolMissing,
        ToolNotAllowed,
        ToolRefused,
        ToolUnsupported,
        TooManyHung,
        UniqueConflict,
        UnknownHandler,
        UnknownOutcome,
        UnknownScope,
        UnknownTool,
        UnsafePath,
        UnsupportedTransaction,
        Verdict,
        VersionMismatch,
        WaitCircle,
        WaitInsideJob,
        WaitTimeout,
        WorkerNotFound,
        WrongToken,
    )
    from perdure.model.events import Event
    from perdure.model.explanation import Explanation
    from perdure.model.fsck_faults import Finding
    from perdure.model.job_fields import JobFields
    from perdure.model.jobs import Job
    from perdure.model.memory import MemoryChunk, MemoryEntry, MemoryHit, MemoryImport
    from perdure.model.messages import Message, Sent
    from perdure.model.partial import LastAction, PartialResult
    from perdure.model.queues import QueueInfo, QueuePause
    from perdure.model.schedules import Overlap, Schedule, ScheduledFor
    from perdure.model.shared_budgets import SharedBudget
    from perdure.model.signals import Signal
    from perdure.model.states import TRANSITIONS, Status
    from perdure.model.stuck import Stuck, StuckJob
    from perdure.model.task_records import AccountInfo, JobFile, TaskOutcome, TaskResult, ToolRun
    from perdure.model.timing import Backoff
    from perdure.model.tool_approvals import ApprovalContext
    from perdure.model.tooling import Account, RunClass, TaskSpec
    from perdure.model.unique import Unique
    from perdure.runtime.client.client import Client
    from perdure.runtime.client.enqueue import Request
    from perdure.runtime.context.approvals import ApprovalRequest, Decision
    from perdure.runtime.context.blocking import BlockingContext
    from perdure.runtime.context.children import ChildHandle
    from perdure.runtime.context.context import JobContext
    from perdure.runtime.context.current_call import idempotency_key
    from perdure.runtime.context.current_context import current_context
    from perdure.runtime.context.wait_any import First, OnApproval, OnChild, OnMessage, OnSignal, OnTime
    from perdure.runtime.handle import Handle
    from perdure.runtime.registry import Handler
    from perdure.runtime.worker import Worker

__all__ = [
    "Account",
    "AccountDisabled",
    "AccountExists",
    "AccountInfo",
    "AccountNotFound",
    "Action",
    "AgentBusy",
    "AgentExists",
    "AgentInUse",
    "AgentInstance",
    "AgentNotFound",
    "AgentPaused",
    "AgentStatus",
    "AlreadyDecided",
    "AmbiguousId",
    "App",
    "Approval",
    "ApprovalChanged",
    "ApprovalContext",
    "ApprovalExpired",
    "ApprovalNotFound",
    "ApprovalRequest",
    "ApprovalRule",
    "ApprovalRuleNotFound",
    "ApprovalStatus",
    "Backoff",
    "Batch",
    "BatchJob",
    "BlobDirUnusable",
    "BlockingContext",
    "Budget",
    "BudgetExceeded",
    "ChildCancelled",
    "ChildError",
    "ChildFailed",
    "ChildHandle",
    "Client",
    "ConfigError",
    "Conflict",
    "ContentDamaged",
    "ContentMissing",
    "ConversationMessage",
    "CutMessage",
    "DangerRefused",
    "Decision",
    "Denied",
    "DuplicateHandler",
    "EmbedderUnavailable",
    "EmptyPrompt",
    "EmptyQuery",
    "EntrySuperseded",
    "Event",
    "Explanation",
    "ExtraMissing",
    "Fail",
    "FileNotFound",
    "FileReplaced",
    "FilesTooLarge",
    "Finding",
    "First",
    "Fitted",
    "ForeignDatabase",
    "Handle",
    "Handler",
    "HandlerError",
    "IdempotencyConflict",
    "IllegalTransition",
    "InvalidAccount",
    "InvalidBudget",
    "InvalidExport",
    "InvalidInput",
    "InvalidModel",
    "InvalidOutputSpec",
    "InvalidPriority",
    "InvalidTask",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobDiff",
    "JobError",
    "JobFailed",
    "JobFields",
    "JobFile",
    "JobLeased",
    "JobNotFound",
    "JobPruned",
    "LastAction",
    "LeaseLost",
    "MalformedUrl",
    "MemoryChunk",
    "MemoryEntry",
    "MemoryHit",
    "MemoryImport",
    "Message",
    "MigrationChanged",
    "MixedDimensions",
    "NegativeDelay",
    "NoTransaction",
    "NotAssigned",
    "NotFound",
    "NotJson",
    "NotPermitted",
    "NotifyFailed",
    "OnApproval",
    "OnChild",
    "OnMessage",
    "OnSignal",
    "OnTime",
    "OtherDatabase",
    "Overlap",
    "PartialResult",
    "PerdureError",
    "PortTaken",
    "PromptTooLarge",
    "QueueInfo",
    "QueuePause",
    "RealJobs",
    "RecordedFailure",
    "ReplayDiverged",
    "ReplyTimeout",
    "RepositoryRefused",
    "Request",
    "Retry",
    "RunClass",
    "SandboxTooWeak",
    "Schedule",
    "ScheduledFor",
    "SchemaMissing",
    "SchemaOutdated",
    "SchemaTooNew",
    "SecretByValue",
    "SecretMissing",
    "Sent",
    "SessionChanged",
    "SessionMissing",
    "SharedBudget",
    "Signal",
    "SignalConflict",
    "SignalTimeout",
    "SignalTooLate",
    "Snooze",
    "Status",
    "StepChanged",
    "StepNotFound",
    "StoreError",
    "StoreUnreachable",
    "Stuck",
    "StuckJob",
    "Suspended",
    "TRANSITIONS",
    "TaskOutcome",
    "TaskResult",
    "TaskSpec",
    "TextTooLong",
    "TooLarge",
    "TooManyHung",
    "ToolMissing",
    "ToolNotAllowed",
    "ToolRefused",
    "ToolRun",
    "ToolUnsupported",
    "Unique",
    "UniqueConflict",
    "UnknownHandler",
    "UnknownOutcome",
    "UnknownScope",
    "UnknownTool",
    "UnsafePath",
    "UnsupportedTransaction",
    "Verdict",
    "VersionMismatch",
    "WaitCircle",
    "WaitInsideJob",
    "WaitTimeout",
    "Worker",
    "WorkerNotFound",
    "WrongToken",
    "__version__",
    "current_context",
    "idempotency_key",
]

# A name is imported when it is first used, so that the command line starts without pydantic and the drivers.
_HOMES = {
    "perdure.app": "App",
    "perdure.model.agents": "AgentInstance AgentStatus",
    "perdure.model.batches": "Batch BatchJob",
    "perdure.model.approval_rules": "ApprovalRule",
    "perdure.model.approvals": "Approval ApprovalStatus",
    "perdure.model.fsck_faults": "Finding",
    "perdure.model.budgets": "Budget",
    "perdure.model.comparison": "JobDiff",
    "perdure.model.errors": (
        "AccountDisabled AccountExists AccountNotFound AgentBusy AgentExists AgentInUse AgentNotFound AgentPaused AlreadyDecided "
        "AmbiguousId ApprovalChanged ApprovalExpired ApprovalNotFound ApprovalRuleNotFound "
        "BlobDirUnusable BudgetExceeded ChildCancelled "
        "ChildError ChildFailed ConfigError Conflict ContentDamaged ContentMissing DangerRefused Denied DuplicateHandler "
        "EmbedderUnavailable EmptyPrompt EmptyQuery EntrySuperseded ExtraMissing Fail FileNotFound FileReplaced "
        "FilesTooLarge ForeignDatabase HandlerError IdempotencyConflict IllegalTransition InvalidAccount InvalidBudget "
        "InvalidExport InvalidInput InvalidModel InvalidOutputSpec InvalidPriority InvalidTask JobCancelled JobError JobFailed "
        "JobLeased JobNotFound JobPruned LeaseLost MalformedUrl MigrationChanged MixedDimensions NegativeDelay "
        "NoTransaction NotAssigned NotFound NotJson NotPermitted NotifyFailed OtherDatabase PerdureError PortTaken "
        "PromptTooLarge RealJobs RecordedFailure ReplayDiverged ReplyTimeout RepositoryRefused Retry SandboxTooWeak "
        "SchemaMissing SchemaOutdated SchemaTooNew SecretByValue SecretMissing SessionChanged SessionMissing "
        "SignalConflict SignalTimeout SignalTooLate Snooze StepChanged StepNotFound StoreError StoreUnreachable Suspended "
        "TextTooLong TooLarge TooManyHung ToolMissing ToolNotAllowed ToolRefused ToolUnsupported UniqueConflict "
        "UnknownHandler UnknownOutcome UnknownScope UnknownTool UnsafePath UnsupportedTransaction Verdict VersionMismatch "
        "WaitCircle WaitInsideJob WaitTimeout WorkerNotFound WrongToken"
    ),
    "perdure.model.actions": "Action",
    "perdure.model.conversation": "ConversationMessage CutMessage Fitted",
    "perdure.model.events": "Event",
    "perdure.model.explanation": "Explanation",
    "perdure.model.job_fields": "JobFields",
    "perdure.model.jobs": "Job",
    "perdure.model.shared_budgets": "SharedBudget",
    "perdure.model.signals": "Signal",
    "perdure.model.memory": "MemoryChunk MemoryEntry MemoryHit MemoryImport",
    "perdure.model.messages": "Message Sent",
    "perdure.model.partial": "LastAction PartialResult",
    "perdure.model.queues": "QueueInfo QueuePause",
    "perdure.model.schedules": "Overlap Schedule ScheduledFor",
    "perdure.model.states": "TRANSITIONS Status",
    "perdure.model.task_records": "AccountInfo JobFile TaskOutcome TaskResult ToolRun",
    "perdure.model.stuck": "Stuck StuckJob",
    "perdure.model.timing": "Backoff",
    "perdure.model.tool_approvals": "ApprovalContext",
    "perdure.model.tooling": "Account RunClass TaskSpec",
    "perdure.model.unique": "Unique",
    "perdure.runtime.context.approvals": "ApprovalRequest Decision",
    "perdure.runtime.context.blocking": "BlockingContext",
    "perdure.runtime.client.client": "Client",
    "perdure.runtime.client.enqueue": "Request",
    "perdure.runtime.context.children": "ChildHandle",
    "perdure.runtime.context.context": "JobContext",
    "perdure.runtime.context.current_call": "idempotency_key",
    "perdure.runtime.context.current_context": "current_context",
    "perdure.runtime.context.wait_any": "First OnApproval OnChild OnMessage OnSignal OnTime",
    "perdure.runtime.handle": "Handle",
    "perdure.runtime.registry": "Handler",
    "perdure.runtime.worker": "Worker",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'perdure' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
