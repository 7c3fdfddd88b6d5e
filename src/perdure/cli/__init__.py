"""The command line. Modules load when their command runs: `perdure --help` imports neither a driver nor pydantic."""
