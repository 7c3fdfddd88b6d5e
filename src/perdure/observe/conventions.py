"""The names in traces: those of the messaging and GenAI conventions of OpenTelemetry, and perdure's own.

The GenAI conventions are still in development, in open-telemetry/semantic-conventions-genai: when they change, change this file
and SCHEMA. Content (payloads, arguments, results) is never an attribute.
"""

from __future__ import annotations

SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
SCOPE = "perdure"

# spans
SEND = "send {queue}"
PROCESS = "process {queue}"
STEP = "step {name}"
EXECUTE_TOOL = "execute_tool {name}"

# events of a segment
STEP_REPLAYED = "perdure.step.replayed"
TOOL_REPLAYED = "perdure.tool.replayed"
APPROVAL_REQUESTED = "perdure.approval.requested"
APPROVAL_DECIDED = "perdure.approval.decided"
JOB_STUCK = "perdure.job.stuck"

# attributes: messaging
SYSTEM = "messaging.system"
OPERATION_TYPE = "messaging.operation.type"
OPERATION_NAME = "messaging.operation.name"
DESTINATION = "messaging.destination.name"
MESSAGE_ID = "messaging.message.id"
BATCH_COUNT = "messaging.batch.message_count"

# attributes: GenAI
GEN_AI_OPERATION = "gen_ai.operation.name"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"

# attributes: perdure's own, and error.type of the general ones
ERROR_TYPE = "error.type"
JOB_ID = "perdure.job.id"
JOB_KIND = "perdure.job.kind"
JOB_ATTEMPT = "perdure.job.attempt"
JOB_VERSION = "perdure.job.version"
JOB_OUTCOME = "perdure.job.outcome"
STUCK_ACTION = "perdure.stuck.action"
WORKER_ID = "perdure.worker.id"
RESUME_REASON = "perdure.resume_reason"
STEP_NAME = "perdure.step.name"
STEP_KEY = "perdure.step.key"
STEP_SEQUENCE = "perdure.step.sequence"
APPROVAL_ID = "perdure.approval.id"
APPROVAL_DECISION = "perdure.approval.decision"
APPROVAL_CHANNEL = "perdure.approval.channel"
APPROVAL_WAIT = "perdure.approval.wait_seconds"
