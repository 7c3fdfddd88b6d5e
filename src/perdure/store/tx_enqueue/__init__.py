"""Enqueueing inside a transaction of the caller: what both dialects share."""
