"""Where it is kept: the contract in `protocol`, one package per dialect below it."""
