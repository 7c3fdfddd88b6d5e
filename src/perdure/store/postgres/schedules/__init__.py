"""Schedules."""
