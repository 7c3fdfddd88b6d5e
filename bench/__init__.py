"""The benchmark: perdure's workloads beside what the bare database does on the same machine. Run it with `make bench`."""
