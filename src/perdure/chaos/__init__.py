"""The chaos harness: worker processes that are killed, stopped and disconnected, with wrong clocks, while all kinds of jobs run.

At the end it checks in the database that nothing was lost, done twice or written by a worker without its lease. The command is
`perdure chaos`.
"""
