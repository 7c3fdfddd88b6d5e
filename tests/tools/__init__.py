"""Coding CLIs: the real programs, against an API on this machine."""
