"""The accounts of coding CLIs as rows."""
