"""Enqueueing inside a transaction of the caller."""
