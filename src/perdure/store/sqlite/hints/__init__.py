"""Hints between processes: work may be due, events were committed."""
