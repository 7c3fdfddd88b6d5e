"""The tools: a file for each, with what its program is called with, and how its output is read."""
