"""Jobs that jobs have spawned."""
