"""What can be asked of perdure from outside: one typed function per verb, with the role it needs and the errors it raises.

The command line calls these functions and nothing below them. Each takes a client (`app.acting(...)`), which says who acts and
for which tenant, and plain arguments that a JSON schema can describe; `catalog` lists them all as data.
"""
