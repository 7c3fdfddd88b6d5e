"""Pauses of queues."""
