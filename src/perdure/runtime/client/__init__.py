"""What a program does with jobs, one room per role; `client.Client` is all of them."""
