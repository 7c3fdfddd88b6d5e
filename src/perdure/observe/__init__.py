"""Metrics for Prometheus and traces for OpenTelemetry. Both are extras; the modules are imported only if they are wanted."""
