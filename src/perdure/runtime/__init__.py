"""Clients enqueue and control jobs, workers claim and run them. Both use the store only through `store.protocol`."""
