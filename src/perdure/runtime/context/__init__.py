"""What a handler sees: the contexts, and what their calls do."""
