"""The runs of coding CLIs, and what they write."""
