"""The role of agents and their messages."""
