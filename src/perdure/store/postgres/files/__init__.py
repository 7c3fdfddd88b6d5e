"""The files of jobs, and their contents."""
