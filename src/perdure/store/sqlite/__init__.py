"""The store in a SQLite file, or in memory: one writer thread per process, group commit, triggers that guard the rules."""
