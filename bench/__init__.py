"""The benchmark: perdure's workloads, compared with the bare database on the same machine. Run it with `make bench`."""
