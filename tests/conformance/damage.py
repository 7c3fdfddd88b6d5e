"""SQL that damages a healthy database with its triggers switched off, and what `check` and `repair` find and repair.

`{completed}` is the literal of a job's id, `{missing}` that of no job, `{ago}` and `{ahead}` are moments hours away, `{beyond}`
and `{before}` those that no program can read.
"""

from dataclasses import dataclass

from perdure.model.ids import hash_json


@dataclass(frozen=True)
class Harm:
    """SQL, statements separated by semicolons; what is found of it, as code and job; and whether that is repaired.

    `left`: what repairs leave; None: nothing if `fixed`, else all of it.
    """

    expected: set[str]
    sql: str
    fixed: bool = True
    left: frozenset[str] | None = None

    @property
    def remains(self) -> set[str]:
        """What is found after repairs."""
        return set(self.left if self.left is not None else () if self.fixed else self.expected)


def each(code: str, *names: str) -> set[str]:
    """One fault of several jobs."""
    return {f"{code} {name}" for name in names}


def in_the_queue(name: str) -> str:
    return f"insert into job_queue (job_id, lane, kind, priority, run_at) values ({{{name}}}, 'default', 'echo', 5, {{ago}})"


def claimed(name: str, expires: str) -> str:
    return (
        "insert into job_claims (job_id, attempt, version, worker_id, expires_at) "
        f"values ({{{name}}}, 1, 3, 'w', {{{expires}}})"
    )


def ran(name: str, attempt: int) -> str:
    return (
        "insert into job_incomplete_runs (job_id, attempt, worker_id, started_at, finished_at, outcome) "
        f"values ({{{name}}}, {attempt}, 'w', {{ago}}, {{ago}}, 'COMPLETED')"
    )


def listed(name: str) -> str:
    return f"insert into job_failures (job_id, status, finished_at) values ({{{name}}}, 'FAILED', {{ago}})"


def sent(name: str) -> str:
    return (
        "insert into signals (id, job_id, key, payload, actor, via, created_at) "
        f"values ({{missing}}, {{{name}}}, 'x', '1', 'x', 'x', {{ago}})"
    )


def kept(name: str, attempt: int) -> str:
    return (
        "insert into job_files (id, tenant_id, job_id, attempt, is_input, path, hash, size_bytes, created_at) "
        f"select {{another}}, 'default', {{{name}}}, {attempt}, false, 'x', hash, size_bytes, created_at from job_files "
        "where path = 'out.txt'"
    )


def written(name: str, attempt: int) -> str:
    return (
        "insert into tool_output (job_id, attempt, seq, stream, content, created_at) "
        f"values ({{{name}}}, {attempt}, 1, 'stdout', 'x', {{ago}})"
    )


def waiting(name: str) -> str:
    return f"insert into job_waits (job_id, key, kind) values ({{{name}}}, 'x', 'timer')"


STEP = (
    "select {} from job_events e where e.job_id = {{completed}} and e.type = 'node_finished' order by e.version limit 1"
)

OF_THE_LOG = [
    Harm({"log-missing pending"}, "delete from job_events where job_id = {pending}", fixed=False),
    Harm(
        {"log-gap completed"},
        "delete from job_events where job_id = {completed} and type = 'waypoint' and attempt = 1",
        fixed=False,
    ),
    Harm(
        {"log-gap failed", "log-first failed"},
        "delete from job_events where job_id = {failed} and version = 1",
        fixed=False,
    ),
    Harm(
        {"log-first pending"},
        "update job_events set type = 'hello' where job_id = {pending} and version = 1",
        fixed=False,
    ),
    Harm(
        {"log-chain failed"},
        "update job_events set from_status = 'PARKED' where job_id = {failed} and to_status = 'FAILED'",
        fixed=False,
    ),
    Harm(
        {"log-illegal never", "row-status never"},
        "update job_events set to_status = 'RETRY', type = 'job_retrying' where job_id = {never} and version = 2",
        fixed=False,
    ),
    Harm(
        {"log-type failed"},
        "update job_events set type = 'job_completed' where job_id = {failed} and to_status = 'FAILED'",
        fixed=False,
    ),
    Harm(
        {"log-type failed", "row-version failed", "log-after-end failed"},
        "insert into job_events (job_id, version, type, attempt) "
        "select {failed}, 1 + max(version), 'job_completed', 1 from job_events where job_id = {failed}",
        fixed=False,
    ),
    Harm(
        {"log-time parked"},
        "update job_events set created_at = {before} where job_id = {parked} and version = 2",
        fixed=False,
    ),
    Harm(
        {"log-payload asking"},
        "update job_events set payload = '{{}}' where job_id = {asking} and type = 'approval_requested'",
        fixed=False,
    ),
    Harm(
        {"log-payload completed"},
        "update job_events set payload = '{{}}' where job_id = {completed} and type = 'tool_returned'",
        fixed=False,
    ),
    Harm(
        {"log-after-end never"},
        "insert into job_events (job_id, version, type) values ({never}, 3, 'waypoint');"
        "update jobs set version = 3 where id = {never}",
        fixed=False,
    ),
    Harm(
        {"log-attempt completed"},
        "update job_events set attempt = 1 where job_id = {completed} and type = 'waypoint';"
        "update job_events set attempt = 2 where job_id = {completed} and type = 'tool_called'",
        fixed=False,
    ),
    Harm(
        {"log-unleased parked"},
        "insert into job_events (job_id, version, type, attempt) "
        "select id, version + 1, 'step_failed', attempt from jobs where id = {parked};"
        "update jobs set version = version + 1 where id = {parked}",
        fixed=False,
    ),
    Harm(
        {"step-twice completed"},
        f"update job_events set type = 'node_finished', payload = ({STEP.format('e.payload')})"
        " where job_id = {completed} and type = 'waypoint' and attempt = 2",
        fixed=False,
    ),
    Harm(
        {"event-twice completed"},
        f"update job_events set event_id = ({STEP.format('e.event_id')})"
        " where job_id = {completed} and type = 'waypoint' and attempt = 1",
        fixed=False,
    ),
]
OF_THE_ROW = [
    Harm({"row-time pending"}, "update jobs set deadline = {beyond} where id = {pending}"),
    Harm({"row-time delayed"}, "update jobs set run_at = {beyond} where id = {delayed}"),
    Harm({"row-time parked"}, "update jobs set created_at = {before} where id = {parked}", fixed=False),
    Harm({"row-status running"}, "update jobs set status = 'WAITING' where id = {running}", fixed=False),
    Harm(
        each("row-version", "completed", "running"),
        "update jobs set version = version + 1 where id in ({completed}, {running})",
        fixed=False,
    ),
    Harm({"row-attempt parked"}, "update jobs set attempt = attempt + 1 where id = {parked}", fixed=False),
    Harm({"row-retries completed"}, "update jobs set retry_count = 0 where id = {completed}", fixed=False),
    Harm(
        {"row-payload never"},
        "update jobs set payload = '[\"mine\"]', payload_hash = 'x' where id = {never}",
        fixed=False,
    ),
    Harm({"row-created parked"}, "update jobs set created_at = {ago} where id = {parked}", fixed=False),
]
WITHOUT_A_JOB = [
    Harm({"job-missing asking", "orphan asking"}, "delete from jobs where id = {asking}", fixed=False),
    Harm(
        {"orphan ?"},
        f"{in_the_queue('missing')}; {waiting('missing')}; {listed('missing')}; {claimed('another', 'ahead')};"
        "insert into job_state (job_id, tokens, updated_at) values ({missing}, 5, {ago})",
    ),
    Harm({"orphan ?"}, ran("missing", 1), fixed=False),
    Harm({"orphan ?"}, sent("missing")),
    Harm({"orphan ?"}, f"{kept('missing', 1)}; {written('missing', 1)}"),
    Harm({"orphan ?"}, "update tool_runs set job_id = {missing} where job_id = {coded}", fixed=False),
    Harm({"memory-sums"}, "insert into memory_scopes (scope, tokens) values ('tenant', 5)"),
    Harm(
        {"memory-unindexed"},
        "insert into memory_scopes (scope, entries) values ('tenant', 1);"
        "insert into memory_entries (id, scope_no, text, created_at) values ({missing}, 1, 'x', {ago})",
    ),
    Harm({"prune-left"}, "insert into prune_batch (job_id) values ({completed})"),
]
OF_THE_LANE = [
    Harm(
        each("lane-differs", "pending", "parked", "running"),
        "update jobs set lane = 'x' where id in ({pending}, {parked}, {running});"
        "update job_queue set lane = 'x' where job_id in ({pending}, {parked})",
    ),
    Harm(
        each("lane-differs", "delayed") | each("queue-differs", "delayed"),
        "update jobs set queue = 'slow' where id = {delayed}; update job_queue set lane = 'x' where job_id = {delayed};"
        "update jobs set queue = 'default', lane = 'y' where id = {delayed}",
    ),
]
OF_THE_CLAIM = [
    Harm(
        each("claim-missing", "running", "waiting", "slot", "coding") | {"slot-unseen held"}, "delete from job_claims"
    ),
    Harm(each("claim-stale", "parked", "completed"), f"{claimed('parked', 'ahead')}; {claimed('completed', 'ago')}"),
    Harm(
        each("claim-differs", "running", "waiting"),
        "update job_claims set version = version + 1 where job_id = {running};"
        "update job_claims set tenant_id = 'x' where job_id = {waiting}",
    ),
    Harm({"claim-differs running"}, "update job_claims set expires_at = {ahead} where job_id = {running}"),
    Harm({"claim-differs running"}, "update job_claims set expires_at = {beyond} where job_id = {running}"),
    Harm({"claim-differs running"}, "update job_claims set attempt = attempt + 1 where job_id = {running}"),
    Harm(
        {"claim-differs slot", "slot-unseen held"}, "update job_claims set concurrency_key = null where job_id = {slot}"
    ),
    Harm({"claim-differs coding"}, "update job_claims set account_id = 'y' where job_id = {coding}"),
    Harm({"lease-overdue running"}, "update job_claims set expires_at = {ago} where job_id = {running}", fixed=False),
]
OF_THE_WAITS = [
    Harm({"wait-stale completed"}, waiting("completed")),
    Harm({"wait-missing asking", "queue-missing asking"}, "delete from job_waits where job_id = {asking}"),
    Harm({"wait-missing parked", "queue-differs parked"}, "delete from job_waits where job_id = {parked}"),
    Harm({"wait-missing waiting"}, "delete from job_waits where job_id = {waiting}"),
    Harm({"wait-unknown running"}, waiting("running")),
    Harm({"wait-differs waiting"}, "update job_waits set until = {beyond} where job_id = {waiting}"),
    Harm({"wait-differs waiting"}, "update job_waits set until = {ahead} where job_id = {waiting}"),
    Harm({"wait-differs parked", "queue-differs parked"}, "update job_waits set until = {ago} where job_id = {parked}"),
    Harm(
        {"wait-differs asking", "wait-unknown asking"},
        f"update job_waits set subject_id = null where job_id = {{asking}}; {waiting('asking')}",
    ),
    Harm({"wait-answer asking"}, "update job_waits set answered_at = {ago} where job_id = {asking}"),
    Harm({"wait-answer decided"}, "update job_waits set answered_at = null where job_id = {decided}"),
    Harm({"wait-differs decided"}, "update job_waits set answered_at = {beyond} where job_id = {decided}"),
    Harm({"wait-missing decided"}, "delete from job_waits where job_id = {decided}"),
]
OF_THE_APPROVALS = [
    Harm({"approval-stale gone"}, "update approvals set status = 'PENDING', decided_at = null where job_id = {gone}"),
    Harm({"approval-missing asking"}, "delete from approvals where job_id = {asking}", fixed=False),
    Harm(
        {"approval-unknown running"},
        "insert into approvals (id, job_id, key, title, payload, payload_digest, requester) "
        f"values ({{missing}}, {{running}}, 'x', 'x', 'null', '{hash_json('null')}', 'x')",
        fixed=False,
    ),
    Harm(
        {"approval-differs asking", "wait-answer asking", "queue-missing asking"},
        "update approvals set status = 'APPROVED', decided_at = {now} where job_id = {asking}",
        left=frozenset({"approval-differs asking"}),
    ),
    Harm(
        {"approval-differs decided"},
        "update approvals set status = 'PENDING', decided_at = null where job_id = {decided}",
        fixed=False,
    ),
    Harm({"approval-differs asking"}, "update approvals set payload = '7' where job_id = {asking}", fixed=False),
    Harm({"approval-differs asked"}, "update approvals set status = 'DENIED' where job_id = {asked}", fixed=False),
    Harm({"approval-differs asking"}, "update approvals set tenant_id = 'x' where job_id = {asking}", fixed=False),
]
OF_THE_SIGNALS = [
    Harm({"signal-missing listening"}, "delete from signals where job_id = {listening}", fixed=False),
    Harm({"signal-missing heard"}, "delete from signals where job_id = {heard}", fixed=False),
    Harm({"signal-unknown running"}, sent("running"), fixed=False),
    Harm({"signal-unknown paid"}, sent("paid"), fixed=False),
    Harm({"signal-differs listening"}, "update signals set tenant_id = 'x' where job_id = {listening}", fixed=False),
    Harm({"signal-unbound listening"}, "update signals set key = 'paid' where job_id = {listening}"),
    Harm(
        {"signal-unbound heard"},
        "update signals set consumed_by_job_id = null, consumed_at = null, wait_key = null where job_id = {heard}",
    ),
    Harm({"wait-answer heard"}, "update job_waits set answered_at = null where job_id = {heard}"),
    Harm({"wait-answer listening"}, "update job_waits set answered_at = {ago} where job_id = {listening}"),
]
OF_AGENTS = [
    Harm(
        {"orphan ?", "message-twice answered"},
        "update agent_messages set consumed_by_job_id = {missing} where consumed_by_job_id = {answered}",
        fixed=False,
    ),
    Harm(
        {"message-unbound answered"},
        "update agent_messages set consumed_by_job_id = null, consumed_at = null where consumed_by_job_id = {answered}",
    ),
    Harm(
        {"message-twice answered"},
        "update agent_messages set consumed_by_job_id = {running} where consumed_by_job_id = {answered}",
        fixed=False,
    ),
    Harm({"message-missing answered"}, "delete from agent_messages where consumed_by_job_id = {answered}", fixed=False),
    Harm(
        {"message-unknown expecting", "wait-answer expecting", "message-missing received", "queue-missing expecting"},
        "update agent_messages set consumed_by_job_id = {expecting} where consumed_by_job_id = {received}",
        left=frozenset({"message-unknown expecting", "message-missing received"}),
    ),
    Harm({"wait-answer received"}, "update job_waits set answered_at = null where job_id = {received}"),
    Harm({"wait-answer expecting"}, "update job_waits set answered_at = {ago} where job_id = {expecting}"),
    Harm(
        {"message-differs answered"},
        "update agent_messages set tenant_id = 'x' where consumed_by_job_id = {answered}",
        fixed=False,
    ),
    Harm({"message-undelivered"}, "delete from agent_deliveries"),
    Harm(
        {"agent-job-ended"},
        "insert into agent_jobs (tenant_id, agent_id, job_id) values ('default', 'ann', {answered});"
        "insert into agent_jobs (tenant_id, agent_id, job_id) values ('default', 'ann', {missing})",
    ),
    Harm({"agent-unlisted expecting"}, "delete from agent_jobs where job_id = {expecting}"),
    Harm({"signal-missing received"}, "delete from signals where job_id = {received}", fixed=False),
    Harm(
        {"agent-signal-lost"},
        "update agent_signals set consumed_by_job_id = {running}, consumed_at = {ago} where agent_id = 'ann'",
    ),
    Harm(
        {"agent-signal-differs"},
        "update agent_signals set consumed_by_job_id = null, consumed_at = null where agent_id = 'received'",
    ),
    Harm(
        {"agent-signal-differs"},
        "update agent_signals set consumed_by_job_id = {running} where agent_id = 'received'",
    ),
    Harm({"agent-signal-orphan"}, "update agent_signals set agent_id = 'bob' where agent_id = 'ann'", fixed=False),
    Harm(
        {"agent-signal-unbound"},
        "delete from agent_deliveries where agent_id = 'expecting';"
        "update agent_signals set agent_id = 'expecting', key = 'paid' where agent_id = 'ann';"
        "insert into agent_jobs (tenant_id, agent_id, job_id) values ('default', 'expecting', {listening})",
    ),
    Harm({"session-differs"}, "update agent_states set version = 7", fixed=False),
    Harm({"wait-missing expecting", "queue-missing expecting"}, "delete from job_waits where job_id = {expecting}"),
]
OF_CHILDREN = [
    Harm({"wait-answer parent", "queue-missing parent"}, "delete from awaited_jobs where job_id = {parent}"),
    Harm({"wait-answer joined"}, "update job_waits set answered_at = null where job_id = {joined}"),
    Harm({"wait-answer callback", "queue-differs callback"}, "delete from awaited_jobs where job_id = {callback}"),
]
OF_LISTS = [
    Harm({"tag-missing parked"}, "delete from job_tags"),
    Harm(
        {"tag-stale"},
        "insert into job_tags (tenant_id, tag, job_id) values ('default', 'slow', {running});"
        "insert into job_tags (tenant_id, tag, job_id) values ('default', 'slow', {missing})",
    ),
    Harm(
        {"key-stale"},
        "insert into unique_keys (tenant_id, kind, key, job_id) values ('default', 'x', 'k', {completed});"
        "insert into unique_keys (tenant_id, kind, key, job_id) values ('default', 'y', 'k', {missing})",
    ),
    Harm({"pause-differs"}, "update queue_pauses set resumed_at = {ago}", fixed=False),
]
OF_THE_FILES = [
    Harm(
        {"content-lost coded"},
        "delete from file_contents where hash = (select hash from job_files where path = 'out.txt')",
        fixed=False,
    ),
    Harm({"file-differs coded"}, "update file_contents set content = '12345' where size_bytes = 3", fixed=False),
    Harm({"file-differs coded"}, "update job_files set size_bytes = 9 where path = 'in.txt'", fixed=False),
    Harm({"file-differs coded"}, "update job_files set tenant_id = 'x' where path = 'same.txt'", fixed=False),
    Harm({"file-unknown coded"}, kept("coded", 7), fixed=False),
    Harm({"file-unknown coded"}, "update job_files set attempt = 1 where is_input", fixed=False),
    Harm({"tool-run-unknown coded"}, "update tool_runs set attempt = 2 where job_id = {coded}", fixed=False),
    Harm({"tool-run-unknown coded"}, "update tool_runs set tenant_id = 'x' where job_id = {coded}", fixed=False),
    Harm({"tool-run-unknown coded"}, written("coded", 2), fixed=False),
]
OF_THE_QUEUE = [
    Harm(
        each("queue-missing", "pending", "fork", "delayed", "retrying", "snoozing", "taken", "parked", "decided")
        | each("queue-missing", "held", "keyed", "task", "heard")
        | each("queue-missing", "received", "joined", "child", "part"),
        "delete from job_queue",
    ),
    Harm(
        each("queue-differs", "pending", "fork", "delayed", "snoozing", "retrying", "parked", "decided"),
        "update job_queue set lane = 'x' where job_id = {pending};"
        "update job_queue set kind = 'x' where job_id = {fork};"
        "update job_queue set priority = 1 where job_id = {delayed};"
        "update job_queue set deadline = {ago} where job_id = {snoozing};"
        "update job_queue set run_at = {ahead} where job_id in ({retrying}, {parked}, {decided})",
    ),
    Harm(
        each("queue-differs", "delayed", "parked", "decided"),
        "update job_queue set run_at = {beyond} where job_id = {delayed};"
        "update job_queue set run_at = {before} where job_id in ({parked}, {decided})",
    ),
    Harm({"queue-differs delayed"}, "update job_queue set run_at = {ago} where job_id = {delayed}"),
    Harm(
        each("queue-differs", "held", "keyed"),
        "update job_queue set concurrency_key = 'x' where job_id = {held};"
        "update job_queue set concurrency_key = null, tenant_id = null where job_id = {keyed}",
    ),
    Harm({"queue-differs pending"}, "update job_queue set held = not held where job_id = {pending}"),
    Harm({"queue-differs keyed"}, "update job_queue set tenant_id = 'x' where job_id = {keyed}"),
    Harm(
        each("queue-differs", "task", "pending"),
        "update job_queue set wanted_account = 'y' where job_id in ({task}, {pending})",
    ),
    Harm({"queue-differs task"}, "update job_queue set wanted_account = null where job_id = {task}"),
    Harm({"slot-unseen keyed"}, "update job_queue set held = not held where job_id = {keyed}"),
    Harm({"queue-differs retrying"}, "update job_queue set status = 'PENDING' where job_id = {retrying}"),
    Harm(
        each("queue-stale", "running", "waiting", "completed", "dead"),
        ";".join(map(in_the_queue, ("running", "waiting", "completed", "dead"))),
    ),
]
OF_THE_REST = [
    Harm(each("failure-missing", "failed", "dead", "late", "gone", "never", "ended"), "delete from job_failures"),
    Harm({"failure-stale completed"}, listed("completed")),
    Harm({"failure-differs dead"}, "update job_failures set status = 'FAILED' where job_id = {dead}"),
    Harm(
        each("state-missing", "completed", "pruned", "fork"),
        "delete from job_state where job_id in ({completed}, {pruned}, {fork})",
    ),
    Harm({"state-differs pruned"}, "update job_state set checkpoint = '1' where job_id = {pruned}"),
    Harm(
        {"state-differs completed"},
        "update job_state set checkpoint = '[2, \"the last two\"]' where job_id = {completed}",
    ),
    Harm({"state-differs completed"}, "update job_state set tokens = tokens + 1 where job_id = {completed}"),
    Harm(
        each("state-differs", "completed", "running"),
        "update job_state set checkpoint = null where job_id = {completed};"
        "update job_state set cost = 1 where job_id = {running}",
    ),
    Harm(
        each("run-unknown", "running", "parked", "pending"),
        f"{ran('running', 1)}; {ran('parked', 2)}; {ran('pending', 1)}",
    ),
    Harm(
        each("run-missing", "completed", "parked"),
        "delete from job_incomplete_runs where job_id in ({completed}, {parked}, {taken}, {dead})",
        fixed=False,
    ),
    Harm(
        {"run-missing completed"},
        "update job_events set ran = null where job_id = {completed} and to_status = 'COMPLETED'",
        fixed=False,
    ),
    Harm(
        {"run-differs failed"},
        "update job_incomplete_runs set outcome = 'COMPLETED' where job_id = {failed}",
        fixed=False,
    ),
]
HARMS = [
    *OF_THE_LOG,
    *OF_THE_ROW,
    *WITHOUT_A_JOB,
    *OF_THE_LANE,
    *OF_THE_CLAIM,
    *OF_THE_WAITS,
    *OF_THE_APPROVALS,
    *OF_THE_SIGNALS,
    *OF_AGENTS,
    *OF_CHILDREN,
    *OF_LISTS,
    *OF_THE_FILES,
    *OF_THE_QUEUE,
    *OF_THE_REST,
]
