"""What things are: frozen records and pure rules. Imports the standard library and pydantic, nothing of ours above."""
