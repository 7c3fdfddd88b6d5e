"""Contents of files that are too large for the database: a directory of blobs."""
