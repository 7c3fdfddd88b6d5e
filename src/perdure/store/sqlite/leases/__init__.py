"""What workers do with jobs: claim, renew, record, finish, reap."""
