"""What a program does with jobs: `client.Client` and its parts, a file for each."""
