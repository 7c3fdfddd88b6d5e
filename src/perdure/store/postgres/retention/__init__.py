"""Deleting finished jobs."""
