"""What clients do with jobs."""
