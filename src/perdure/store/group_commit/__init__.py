"""Group commit: calls that arrive while a write is in progress share the next one."""
