"""Connections, transactions, values, driver errors and migrations."""
