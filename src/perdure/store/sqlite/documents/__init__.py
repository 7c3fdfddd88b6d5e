"""The role of documents."""
