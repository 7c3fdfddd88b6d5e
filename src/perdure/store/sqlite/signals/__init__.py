"""Signals to jobs."""
