"""Names of environment variables: which ones an account and a task may set for a coding CLI."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_OWN = re.compile(r"LD_.*|DYLD_.*|PATH|HOME|TMPDIR|TMP|TEMP|SHELL|IFS|ENV|BASH_.*|PERDURE_.*")
"""Set by the launcher alone, or read by the loader and the shell before any program."""
_OF_ACCOUNTS = re.compile(
    r"CODEX_.*|OPENAI_.*|CLAUDE.*|ANTHROPIC_.*|GEMINI_.*|GOOGLE_.*|XDG_.*|NODE_.*|NPM_.*|PYTHON.*|GIT_.*|SSH_.*|SSL_.*|.*_PROXY"
    r"|DISABLE_.*|API_TIMEOUT_MS|IS_SANDBOX",
    re.IGNORECASE,
)
"""They say whose credential is used and where it is sent: a task that could set them could send it to another address."""
_SECRET = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)($|_)|APIKEY", re.IGNORECASE)


def account_problem(name: object) -> str | None:
    """What is wrong with the name of a variable of an account, or None."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "is no name of a variable: letters, digits and underscores"
    if _OWN.fullmatch(name):
        return "is set by perdure alone"
    return None


def task_problem(name: object) -> str | None:
    """What is wrong with the name of a variable of a task, or None."""
    problem = account_problem(name)
    if problem is None and _OF_ACCOUNTS.fullmatch(str(name)):
        return "can only be set by an account"
    return problem


def referred_variable(value: str) -> str | None:
    """The variable of the worker that a value of a task's environment refers to as `env:NAME`; None if it is the value itself."""
    name = value.removeprefix("env:")
    return name if name != value and _NAME.fullmatch(name) else None


def names_a_secret(name: str) -> bool:
    """Whether a variable holds a secret by its name."""
    return _SECRET.search(name) is not None
