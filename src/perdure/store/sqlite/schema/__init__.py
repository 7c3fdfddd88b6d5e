"""The schema: migrations, checks, sizes, database time."""
