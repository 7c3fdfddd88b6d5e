"""The stores of the conformance suite."""

from tests.conformance.conftest import file_store, neighbour, shared_postgres_url, shell, store, twin

__all__ = ["file_store", "neighbour", "shared_postgres_url", "shell", "store", "twin"]
