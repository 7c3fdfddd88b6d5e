"""Clients, which enqueue and control jobs, and workers, which claim and run them. Uses the store only through `store.protocol`."""
