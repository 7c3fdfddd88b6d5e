"""Approvals: requested by a job, decided by a person."""
