"""Which calls of a store only read: a worker of a test that is being killed may still make them."""

from __future__ import annotations

READS: dict[str, frozenset[str]] = {
    "schema": frozenset({"backup", "check_schema", "schema_status"}),
    "jobs": frozenset(
        {
            "get_job",
            "find_job",
            "heads",
            "newest_rerun",
            "list_jobs",
            "count_jobs",
            "list_runs",
            "list_events",
            "rerun_of",
            "situation",
            "waiting_for_code",
        }
    ),
    "leases": frozenset({"next_due", "waiting_queues", "cancel_requests", "read_wait"}),
    "approvals": frozenset({"get_approval", "find_approval", "list_approvals", "find_rule", "list_rules", "rule_for"}),
    "signals": frozenset({"bound_signal", "list_agent_signals", "list_signals"}),
    "children": frozenset(
        {"read_children", "list_children", "waiters", "tree", "cancelled_parents", "children_to_cancel"}
    ),
    "limits": frozenset({"list_limits", "get_limit", "list_budgets"}),
    "schedules": frozenset({"get_schedule", "list_schedules"}),
    "queues": frozenset({"list_pauses"}),
    "memories": frozenset(
        {
            "find_memory",
            "get_memory",
            "known_memories",
            "list_memories",
            "memories_after",
            "matching_memories",
            "memories_by_no",
            "memory_sample",
            "memory_standing",
            "memory_expansions",
            "memory_frequencies",
            "memory_scopes",
            "passing_memories",
            "rank_memory_text",
            "rank_memory_vectors",
            "superseded_memories",
        }
    ),
    "documents": frozenset({"list_documents", "read_document"}),
    "workers": frozenset({"list_workers"}),
    "agents": frozenset(
        {
            "get_agent",
            "list_agents",
            "agent_of",
            "due_agents",
            "next_delivery",
            "list_messages",
            "bound_messages",
            "read_state",
            "list_states",
        }
    ),
    "accounts": frozenset({"list_accounts", "get_account"}),
    "files": frozenset({"copy_file", "limit", "list_files", "read_file"}),
    "tool_runs": frozenset({"list_tool_runs", "read_output"}),
    "retention": frozenset({"list_prunable", "list_pruned_memory"}),
    "figures": frozenset({"snapshot", "decided", "sizes"}),
    "hints": frozenset({"listen"}),
}
"""The calls of each role that only read: they pass. Any other that is not written out below is refused, so that no write of a
killed worker goes unnoticed."""
