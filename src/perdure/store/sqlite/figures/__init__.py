"""Counts for dashboards and alerts."""
