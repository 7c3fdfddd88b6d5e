"""What happens: clients enqueue and steer, workers claim and run. Sees the store only through `store.protocol`."""
