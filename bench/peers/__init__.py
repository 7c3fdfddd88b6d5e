"""Other job runtimes, measured in the same run through their public APIs, and installed outside this repository."""
