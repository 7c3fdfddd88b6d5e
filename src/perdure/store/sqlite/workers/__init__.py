"""Workers as rows."""
