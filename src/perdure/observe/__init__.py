"""Watching perdure at work: metrics for Prometheus, traces for OpenTelemetry. Both are extras, and nothing here is imported
where neither is asked for."""
