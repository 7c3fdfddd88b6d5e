"""What to do about each error: shown by `perdure help CODE` and on the reference page of errors."""

from __future__ import annotations

ADVICE: dict[str, str] = {
    "malformed-setting": "Correct the setting that is named. `perdure config ls` shows where each value came from.",
    "malformed-url": "Write `memory:`, `sqlite:///relative/path.db`, `sqlite:////absolute/path.db` or `postgresql://...`. "
    "The URL of a SQLite file has no parameters.",
    "extra-missing": "Install it: `pip install 'perdure[metrics]'` or `'perdure[otel]'`, or change the setting that needs it.",
    "port-taken": "Choose another `metrics_port` (`--metrics-port`); 0 takes any that is free, and the log says which. With "
    "`--processes N` the ports above it have to be free as well, one for each process.",
    "blob-dir-unusable": "Make the directory writable, free some space, or name another one: `cli_blob_dir`.",
    "store-error": "Read the message; it carries the database's own words. Trying again does not help. If a SQLite file is "
    "damaged: stop every process that uses it, keep it, and put a backup in its place; then run `perdure fsck` before any "
    "worker starts.",
    "store-unreachable": "Check that the database runs and that the URL and the rights are right. Trying again may help.",
    "file-replaced": "Restart the processes that have the database open, then run `perdure fsck`. Stop every process before "
    "you move, restore or delete the file, and copy it with `perdure db backup`, never with `cp`.",
    "schema-missing": "Run `perdure db migrate`.",
    "foreign-database": "Name perdure's own database. To add its tables to yours in a SQLite file: `perdure db migrate` or "
    "`App(..., migrate=True)`, where no name is in the way. On PostgreSQL rename the schema: "
    "`alter schema perdure rename to ...`.",
    "schema-outdated": "Run `perdure db migrate`.",
    "schema-too-new": "Upgrade perdure on this machine.",
    "migration-changed": "Install the perdure that made this schema, or restore the schema; never edit a migration.",
    "invalid-input": "The message names the argument and what it must look like.",
    "not-json": "Pass JSON values, dataclasses or pydantic models. Clients, files and secrets do not belong in a payload.",
    "too-large": "Store large data elsewhere and pass its address.",
    "invalid-priority": "Give a whole number from 1 to 9.",
    "invalid-budget": "Give positive numbers, or 0 for no limit.",
    "invalid-export": "Write the file again: `perdure jobs export ID --to FILE`, without `--redact`.",
    "empty-query": "Ask in words or in a whole sentence.",
    "unknown-scope": "Write job:<id>, agent:<id>, user:<id>, project:<name> or tenant; in a job also job, agent or user.",
    "text-too-long": "Write the parts as entries of their own, or what matters of it.",
    "mixed-dimensions": "Set memory_dimensions to what the model gives, then run `perdure memory reindex`.",
    "embedder-unavailable": "Check memory_url, memory_model and memory_key, and whether the endpoint answers. Entries are "
    "written meanwhile, and searches by words find them; their vectors follow.",
    "negative-delay": "Leave the delay out to run now.",
    "unsupported-transaction": "Pass the connection, cursor or session on which your transaction runs: one of psycopg 3, "
    "asyncpg, sqlite3 or aiosqlite, or a connection or session of SQLAlchemy 2 over one of them. An engine or a pool has no "
    "transaction; psycopg2 is not supported; blocking code needs a blocking connection.",
    "no-transaction": "Begin a transaction first, or leave `tx=` out to enqueue at once.",
    "other-database": "Give the App the URL of the database that your transaction is in.",
    "wait-circle": "Wait for what the job itself has spawned; let jobs further up do what needs the results of both.",
    "invalid-task": "The message names the field and what it must look like.",
    "unknown-tool": "Use codex, claude, gemini or a tool of `[cli.tools]` in perdure.toml.",
    "empty-prompt": "Give the text, `@FILE`, or `-` for standard input.",
    "prompt-too-large": "Put the text into an input file and name that file in the prompt.",
    "invalid-model": "Write the model's name as its vendor does.",
    "unsafe-path": "Give a path relative to the workspace, with `/` between its parts.",
    "invalid-output-spec": "Give paths and patterns relative to the workspace: results.txt, *.patch, out/**/*.json.",
    "files-too-large": "Give fewer or smaller files, or raise `cli_files_limit`.",
    "invalid-account": "The message names the field and what it must look like.",
    "secret-by-value": "Put the secret into a file or into a variable of the worker, and give `file:/path` or `env:NAME`.",
    "not-found": "Check the id and the database.",
    "job-not-found": "`perdure jobs ls` shows the ids; `perdure config ls` shows which database was asked.",
    "approval-not-found": "`perdure approvals ls` shows those that are pending.",
    "approval-rule-not-found": "`perdure approvals rules --ended` shows them all, also those that are revoked or expired.",
    "account-not-found": "`perdure accounts ls` shows the ids and group names.",
    "account-exists": "Give another id or group name, or `perdure accounts rm` the other one first.",
    "account-disabled": "`perdure accounts enable ID` lets tasks run under it; or name another account, or none.",
    "agent-not-found": "`perdure agents ls` shows them. An agent is created by `perdure agents create`, by a worker with a "
    "handler for it, or by its first message where you say which `--kind` it is of.",
    "agent-exists": "`perdure agents set ID` changes one that exists.",
    "agent-in-use": "Let its jobs end, or `perdure agents rm ID --force`, which cancels them.",
    "agent-busy": "Send again when its job has ended, or let messages wait: `perdure agents set ID --on-busy enqueue`.",
    "agent-paused": "Send again when it is resumed: `perdure agents resume ID`.",
    "file-not-found": "`perdure tasks artifacts ls ID` shows the files.",
    "content-missing": "The message names the machine and the path. Where several machines work on one database, set "
    "`cli_blob_dir` on all of them to one shared directory; if files were deleted, put them back from a backup.",
    "content-damaged": "Put the file that the message names back from a backup. `perdure fsck --deep` finds all such files.",
    "worker-not-found": "`perdure worker status` shows the ids.",
    "step-not-found": "`perdure jobs steps ID` shows the steps; without a step a fork continues where the job ended.",
    "ambiguous-id": "Type more digits, or the full id; of several approvals of a job name one by its own id.",
    "conflict": "Read the job again and decide what to do.",
    "illegal-transition": "Look at the job again: it has changed. A finished job stays as it is, and `perdure jobs rerun` "
    "makes a new one; `perdure jobs explain` says what can be done with one that is not finished.",
    "version-mismatch": "Read the events after your version and try again.",
    "job-leased": "Wait until no worker holds the job, or let its handler write the event with `ctx.emit`.",
    "job-pruned": "Enqueue the job again with its payload, if you have it: an export may have it.",
    "idempotency-conflict": "Use another key for another payload, or send the same payload again.",
    "unique-conflict": "Wait until the job that has the key has ended or its period is over, or do not refuse.",
    "signal-conflict": "Use another id for another signal, or send the same key and payload again.",
    "signal-too-late": "Nothing waits for it any more. `perdure jobs rerun` runs the job again in a new job.",
    "already-decided": "Nothing to do: the first decision counts.",
    "approval-expired": "Nothing to do: the job has continued without the answer, or failed, as it asked for.",
    "approval-changed": "Read the approval again and decide on its new payload.",
    "real-jobs": "Give it a database of its own (`--db`), or allow it: `perdure chaos --allow-real-jobs`. It then works in a "
    "tenant of its own and touches no job of others, but its load and its locks slow others down.",
    "not-permitted": "Ask a person who may.",
    "wrong-token": "Ask for a fresh link: a newer token replaces an older one.",
    "not-assigned": "Decide as one of the assignees, or with the link's token.",
    "handler-error": "Read the message; it names the handler.",
    "unknown-handler": "Check the name, and that the module of the handler is imported. For one that lives elsewhere: "
    "`enqueue(..., elsewhere=True)`.",
    "duplicate-handler": 'Give one of them another name: `@app.job(name="...")`.',
    "too-many-hung": "Start another process; `--processes N` does so by itself. The log names the handlers that did not stop: "
    "give what they wait for a timeout of its own, and let `asyncio.CancelledError` pass. `max_hung` is the limit.",
    "step-changed": "An earlier attempt recorded this step with other arguments: the code was changed, or its arguments are not "
    "the same in every attempt (a time, a random number). So the record may be no answer to this call, and the job fails rather "
    'than guess. Give the step another name, or call it with `ctx.options(on_change="keep")`, which takes the recorded result, '
    'or `on_change="rerun"`, which runs it again.',
    "replay-diverged": "The message names the first step that differs. The code was changed, which is what a replay finds; or it "
    "is not the same each time: a time, a random number or a file that is read outside of a step.",
    "recorded-failure": "Import the module of its class where the handler is defined, so that `except` finds it again.",
    "unknown-outcome": "Find out whether the side effect happened; then `perdure jobs rerun`, if it must be done again.",
    "notify-failed": "Repair the function you passed as `notify=`; its own error is the cause.",
    "lease-lost": "Nothing to do: another worker has the job, and nothing this one tried was written.",
    "tool-refused": "Catch one of those below it; its message says what is missing. No program was started.",
    "tool-missing": "Install it on the worker's machine, as the message says, or start the worker with the PATH that has it.",
    "tool-unsupported": "Install a version that the message names.",
    "secret-missing": "Start the worker with that variable, or put the file where the account says that it is.",
    "repository-refused": "Name a git repository on the worker's machine that its user may read, and a commit of it.",
    "session-missing": "Run the task on the worker that has the session, under the same account, or leave the session out.",
    "sandbox-too-weak": "Run it on a machine that has the level (L1: Linux 5.13 with Landlock; L2: bubblewrap as well), or lower "
    "the level that is required at least.",
    "danger-refused": "All three are needed: an account that permits dangerous flags, a worker configured as a controlled "
    "container and is one, and a credential that is read-only there.",
    "job-error": "Catch one of the three below it.",
    "job-failed": "`error.job` is the record, `error.kind` says why. `perdure jobs rerun` runs it again as a new job.",
    "job-cancelled": "`error.job` is the record, with who cancelled it and why.",
    "wait-inside-job": 'Wait without a slot: `while not (await handle.status()).terminal: await ctx.sleep("child", "10s")`, then '
    "`result()`. The sleeps park the job. Or give `result()` a timeout, if the other job surely has a slot.",
    "wait-timeout": "Wait again: a timeout does not touch the job. `perdure jobs explain` says what it waits for; one that stays "
    "PENDING waits for a worker of its queue, which `perdure worker start` starts.",
    "verdict": "Catch or raise one of those below it.",
    "retry": "Raise it in a handler. Seen outside, the job has used up its retries.",
    "fatal": "Raise it in a handler, as `Fail`. Seen outside, as `error_kind`, the job failed for good.",
    "snooze": "Raise it in a handler to run again later at no cost.",
    "reply-timeout": "Catch it in a handler that asks with a `timeout`. Else the job is FAILED (`timeout`). A reply that comes "
    "later is marked `late`.",
    "entry-superseded": "Supersede the newer entry that the message names; or `perdure memory restore` brings the old one back.",
    "session-changed": "The job reads it again in its next attempt, which uses no retry; or catch it, and call "
    "`ctx.session.get()` again. From outside, `perdure agents session ID` shows the version that it has.",
    "signal-timeout": "Catch it in a handler that waits with a `timeout`. Else the job is FAILED (`timeout`).",
    "tool-not-allowed": "Catch it in a handler that can go on without the tool. Else the job is FAILED (`denied`). To allow the "
    "tool, name it in `ApprovalContext(autonomous=[...])` of the App, the handler and the job, or leave `autonomous` out: then a "
    "person is asked.",
    "budget-exceeded": "Catch it in a handler that can end with what it has. Else the job is FAILED (`budget`). Run it again "
    "with more: `perdure jobs start --budget-tokens`, `--budget-cost`; `perdure jobs get` shows what was spent.",
    "child-error": "Catch one of the two below it.",
    "child-failed": "Catch it where the parent can go on without the child. `error.child_id` is the job, `error.error` says why; "
    "`perdure jobs rerun` runs the child again as a job of its own.",
    "child-cancelled": "Catch it where the parent can go on without the child. `perdure jobs get` says who cancelled it.",
    "denied": 'Catch it in a handler that asked with `on_deny="resume"`. Else the job is FAILED.',
    "error": "Catch it to catch everything that perdure raises.",
    "usage": "Nothing was done. `--help` after the command shows what it takes.",
    "app-not-found": "Write `--app module:attribute`, or set `app`; the module must be importable from where you are.",
    "not-confirmed": "Add `--yes`, or run it on a terminal.",
    "declined": "Nothing was done. Run the command again to answer yes.",
    "approval-needed": "`perdure approvals ls` shows what it asks for; the job continues when it is decided.",
    "no-worker": "`perdure worker start --app module:attribute` starts one; `worker status --stopped` shows those that left.",
    "demo-failed": "The message says why. The demo writes to its own directory alone; `perdure demo` starts a new one.",
    "chaos-failed": "The message says why; no job was checked, so it is no finding about your database. Run it again.",
    "bug": "This is an error in perdure. Run the command again with `-v` and report it with the traceback.",
}
