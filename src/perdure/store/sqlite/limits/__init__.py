"""The limits of concurrency keys."""
