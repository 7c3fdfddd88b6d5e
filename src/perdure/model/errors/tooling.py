"""Errors of tasks, that is of jobs that run a coding CLI, and of the accounts they run under."""

from __future__ import annotations

from perdure.model.errors.base import Conflict, InvalidInput, NotFound, PerdureError
from perdure.model.errors.config import ConfigError


class InvalidTask(InvalidInput):
    """A field of a task is invalid; nothing was written."""

    code = "invalid-task"


class UnknownTool(InvalidTask):
    """There is no adapter for this tool."""

    code = "unknown-tool"


class EmptyPrompt(InvalidTask):
    """A task needs a prompt."""

    code = "empty-prompt"


class PromptTooLarge(InvalidTask):
    """The prompt is longer than its tool reads."""

    code = "prompt-too-large"


class InvalidModel(InvalidTask):
    """A model's name has characters that no vendor uses, or begins with a dash, which a CLI would read as a flag."""

    code = "invalid-model"


class UnsafePath(InvalidTask):
    """A path leaves the workspace, or could: absolute, `..`, a backslash, a control character, a part of `.git`."""

    code = "unsafe-path"


class InvalidOutputSpec(InvalidTask):
    """An output_spec is no list of relative paths and patterns."""

    code = "invalid-output-spec"


class InvalidAccount(InvalidInput):
    """A field of an account is invalid; nothing was written."""

    code = "invalid-account"


class SecretByValue(InvalidInput):
    """An account or a task holds a secret itself; it may only say where the secret is."""

    code = "secret-by-value"


class AccountNotFound(NotFound):
    """No account has this id or group name."""

    code = "account-not-found"


class AccountExists(Conflict):
    """An account has this id or group name already."""

    code = "account-exists"


class AccountDisabled(Conflict):
    """A task names an account that is disabled."""

    code = "account-disabled"


class FileNotFound(NotFound):
    """The job has no such file."""

    code = "file-not-found"


class ContentMissing(FileNotFound):
    """The content of a file is not in the blob directory of this machine."""

    code = "content-missing"


class ContentDamaged(PerdureError):
    """The content of a file is not what was stored."""

    code = "content-damaged"


class FilesTooLarge(InvalidTask):
    """The input files of one task, or the output files of one run, have more bytes together than cli_files_limit."""

    code = "files-too-large"


class BlobDirUnusable(ConfigError):
    """The blob directory of this machine, where large files are kept, cannot be written to."""

    code = "blob-dir-unusable"


class ToolRefused(PerdureError):
    """A coding CLI was not started."""

    code = "tool-refused"


class ToolMissing(ToolRefused):
    """The program of a tool is not on this machine."""

    code = "tool-missing"


class ToolUnsupported(ToolRefused):
    """The installed version of a tool is one that its adapter does not know."""

    code = "tool-unsupported"


class SecretMissing(ToolRefused):
    """A secret that an account or a task refers to cannot be read on this machine, or is not for tasks."""

    code = "secret-missing"


class SessionMissing(ToolRefused):
    """This machine does not have the session that a task continues."""

    code = "session-missing"


class SandboxTooWeak(ToolRefused):
    """This machine cannot give the sandbox level that is required at least."""

    code = "sandbox-too-weak"


class RepositoryRefused(ToolRefused):
    """The git repository of a task cannot be used on this machine: it is none, or has no such commit."""

    code = "repository-refused"


class DangerRefused(ToolRefused):
    """A dangerous flag needs the account's permission, a controlled container and a read-only credential."""

    code = "danger-refused"
