"""Every error perdure raises, each a class with a stable `code` and a message that says what happened, why, and what to do.

PerdureError
├── ConfigError                  malformed-setting
│   ├── MalformedUrl             malformed-url
│   ├── ExtraMissing             extra-missing
│   ├── PortTaken                port-taken
│   └── BlobDirUnusable          blob-dir-unusable
├── StoreError
│   ├── StoreUnreachable         store-unreachable
│   ├── FileReplaced             file-replaced
│   ├── SchemaMissing            schema-missing
│   │   └── ForeignDatabase      foreign-database
│   ├── SchemaOutdated           schema-outdated
│   ├── SchemaTooNew             schema-too-new
│   └── MigrationChanged         migration-changed
├── InvalidInput (ValueError)    invalid-input
│   ├── NotJson                  not-json
│   ├── TooLarge                 too-large
│   ├── InvalidPriority          invalid-priority
│   ├── InvalidBudget            invalid-budget
│   ├── InvalidExport            invalid-export
│   ├── EmptyQuery               empty-query
│   ├── UnknownScope             unknown-scope
│   ├── TextTooLong              text-too-long
│   ├── MixedDimensions          mixed-dimensions
│   ├── NegativeDelay            negative-delay
│   ├── UnsupportedTransaction   unsupported-transaction
│   ├── NoTransaction            no-transaction
│   ├── OtherDatabase            other-database
│   ├── WaitCircle               wait-circle
│   ├── InvalidTask              invalid-task
│   │   ├── UnknownTool          unknown-tool
│   │   ├── EmptyPrompt          empty-prompt
│   │   ├── PromptTooLarge       prompt-too-large
│   │   ├── InvalidModel         invalid-model
│   │   ├── UnsafePath           unsafe-path
│   │   ├── InvalidOutputSpec    invalid-output-spec
│   │   └── FilesTooLarge        files-too-large
│   ├── InvalidAccount           invalid-account
│   └── SecretByValue            secret-by-value
├── NotFound (LookupError)
│   ├── JobNotFound              job-not-found
│   ├── ApprovalNotFound         approval-not-found
│   ├── ApprovalRuleNotFound     approval-rule-not-found
│   ├── WorkerNotFound           worker-not-found
│   ├── AccountNotFound          account-not-found
│   ├── AgentNotFound            agent-not-found
│   ├── FileNotFound             file-not-found
│   │   └── ContentMissing       content-missing
│   ├── StepNotFound             step-not-found
│   └── AmbiguousId              ambiguous-id
├── Conflict
│   ├── IllegalTransition        illegal-transition
│   ├── VersionMismatch          version-mismatch
│   ├── JobLeased                job-leased
│   ├── JobPruned                job-pruned
│   ├── IdempotencyConflict      idempotency-conflict
│   ├── UniqueConflict           unique-conflict
│   ├── AlreadyDecided           already-decided
│   ├── ApprovalExpired          approval-expired
│   ├── ApprovalChanged          approval-changed
│   ├── SignalConflict           signal-conflict
│   ├── SignalTooLate            signal-too-late
│   ├── AccountExists            account-exists
│   ├── AccountDisabled          account-disabled
│   ├── AgentExists              agent-exists
│   ├── AgentInUse               agent-in-use
│   ├── AgentBusy                agent-busy
│   ├── AgentPaused              agent-paused
│   ├── SessionChanged           session-changed
│   ├── EntrySuperseded          entry-superseded
│   └── RealJobs                 real-jobs
├── NotPermitted
│   ├── WrongToken               wrong-token
│   └── NotAssigned              not-assigned
├── HandlerError
│   ├── UnknownHandler           unknown-handler
│   ├── DuplicateHandler         duplicate-handler
│   ├── StepChanged              step-changed
│   ├── ReplayDiverged           replay-diverged
│   ├── RecordedFailure          recorded-failure
│   ├── UnknownOutcome           unknown-outcome
│   ├── NotifyFailed             notify-failed
│   ├── TooManyHung              too-many-hung
│   └── LeaseLost                lease-lost
├── EmbedderUnavailable          embedder-unavailable
├── ContentDamaged               content-damaged
├── ToolRefused                  tool-refused
│   ├── ToolMissing              tool-missing
│   ├── ToolUnsupported          tool-unsupported
│   ├── SecretMissing            secret-missing
│   ├── SessionMissing           session-missing
│   ├── SandboxTooWeak           sandbox-too-weak
│   ├── RepositoryRefused        repository-refused
│   └── DangerRefused            danger-refused
├── JobError                     raised by result()
│   ├── JobFailed                job-failed
│   ├── JobCancelled             job-cancelled
│   ├── WaitInsideJob            wait-inside-job
│   └── WaitTimeout              wait-timeout
└── Verdict                      raised by or inside handlers
    ├── Retry  Fail  Snooze
    ├── SignalTimeout            signal-timeout
    ├── ReplyTimeout             reply-timeout
    ├── BudgetExceeded           budget-exceeded
    ├── ToolNotAllowed           tool-not-allowed
    ├── ChildError               child-error
    │   ├── ChildFailed          child-failed
    │   └── ChildCancelled       child-cancelled
    └── Denied                   denied

Suspended derives from BaseException, so that user code which catches Exception does not catch it.

There is a file per noun; `base` has PerdureError and the groups that errors of several nouns belong to.
"""

from __future__ import annotations

from perdure.model.errors.agents import (
    AgentBusy,
    AgentExists,
    AgentInUse,
    AgentNotFound,
    AgentPaused,
    ReplyTimeout,
    SessionChanged,
)
from perdure.model.errors.approvals import (
    AlreadyDecided,
    ApprovalChanged,
    ApprovalExpired,
    ApprovalNotFound,
    ApprovalRuleNotFound,
    NotAssigned,
    NotifyFailed,
    WrongToken,
)
from perdure.model.errors.base import Conflict, HandlerError, InvalidInput, NotFound, NotPermitted, PerdureError
from perdure.model.errors.children import ChildCancelled, ChildError, ChildFailed, WaitCircle
from perdure.model.errors.config import ConfigError, ExtraMissing, MalformedUrl, PortTaken
from perdure.model.errors.handlers import DuplicateHandler, UnknownHandler
from perdure.model.errors.inputs import (
    AmbiguousId,
    InvalidBudget,
    InvalidExport,
    InvalidPriority,
    NegativeDelay,
    NotJson,
    TooLarge,
)
from perdure.model.errors.jobs import (
    IdempotencyConflict,
    IllegalTransition,
    JobLeased,
    JobNotFound,
    JobPruned,
    UniqueConflict,
    VersionMismatch,
)
from perdure.model.errors.memory import (
    EmbedderUnavailable,
    EmptyQuery,
    EntrySuperseded,
    MixedDimensions,
    TextTooLong,
    UnknownScope,
)
from perdure.model.errors.results import JobCancelled, JobError, JobFailed, WaitInsideJob, WaitTimeout
from perdure.model.errors.schema import (
    ForeignDatabase,
    MigrationChanged,
    RealJobs,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
)
from perdure.model.errors.signals import SignalConflict, SignalTooLate
from perdure.model.errors.steps import RecordedFailure, ReplayDiverged, StepChanged, StepNotFound, UnknownOutcome
from perdure.model.errors.store import FileReplaced, StoreError, StoreUnreachable
from perdure.model.errors.tooling import (
    AccountDisabled,
    AccountExists,
    AccountNotFound,
    BlobDirUnusable,
    ContentDamaged,
    ContentMissing,
    DangerRefused,
    EmptyPrompt,
    FileNotFound,
    FilesTooLarge,
    InvalidAccount,
    InvalidModel,
    InvalidOutputSpec,
    InvalidTask,
    PromptTooLarge,
    RepositoryRefused,
    SandboxTooWeak,
    SecretByValue,
    SecretMissing,
    SessionMissing,
    ToolMissing,
    ToolRefused,
    ToolUnsupported,
    UnknownTool,
    UnsafePath,
)
from perdure.model.errors.transactions import NoTransaction, OtherDatabase, UnsupportedTransaction
from perdure.model.errors.verdicts import (
    BudgetExceeded,
    Denied,
    Fail,
    Retry,
    SignalTimeout,
    Snooze,
    Suspended,
    ToolNotAllowed,
    Verdict,
)
from perdure.model.errors.workers import LeaseLost, TooManyHung, WorkerNotFound

__all__ = [
    "AccountDisabled",
    "AccountExists",
    "AccountNotFound",
    "AgentBusy",
    "AgentExists",
    "AgentInUse",
    "AgentNotFound",
    "AgentPaused",
    "AlreadyDecided",
    "AmbiguousId",
    "ApprovalChanged",
    "ApprovalExpired",
    "ApprovalNotFound",
    "ApprovalRuleNotFound",
    "BlobDirUnusable",
    "BudgetExceeded",
    "ChildCancelled",
    "ChildError",
    "ChildFailed",
    "ConfigError",
    "Conflict",
    "ContentDamaged",
    "ContentMissing",
    "DangerRefused",
    "Denied",
    "DuplicateHandler",
    "EmbedderUnavailable",
    "EmptyPrompt",
    "EmptyQuery",
    "EntrySuperseded",
    "ExtraMissing",
    "Fail",
    "FileNotFound",
    "FileReplaced",
    "FilesTooLarge",
    "ForeignDatabase",
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
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobLeased",
    "JobNotFound",
    "JobPruned",
    "LeaseLost",
    "MalformedUrl",
    "MigrationChanged",
    "MixedDimensions",
    "NegativeDelay",
    "NoTransaction",
    "NotAssigned",
    "NotFound",
    "NotJson",
    "NotPermitted",
    "NotifyFailed",
    "OtherDatabase",
    "PerdureError",
    "PortTaken",
    "PromptTooLarge",
    "RealJobs",
    "RecordedFailure",
    "ReplayDiverged",
    "ReplyTimeout",
    "RepositoryRefused",
    "Retry",
    "SandboxTooWeak",
    "SchemaMissing",
    "SchemaOutdated",
    "SchemaTooNew",
    "SecretByValue",
    "SecretMissing",
    "SessionChanged",
    "SessionMissing",
    "SignalConflict",
    "SignalTimeout",
    "SignalTooLate",
    "Snooze",
    "StepChanged",
    "StepNotFound",
    "StoreError",
    "StoreUnreachable",
    "Suspended",
    "TextTooLong",
    "TooLarge",
    "TooManyHung",
    "ToolMissing",
    "ToolNotAllowed",
    "ToolRefused",
    "ToolUnsupported",
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
    "WorkerNotFound",
    "WrongToken",
]

for _name in __all__:  # a traceback shows the name that is imported: perdure.model.errors.JobNotFound
    globals()[_name].__module__ = __name__
