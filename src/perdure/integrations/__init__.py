"""Other libraries' agents inside jobs. Each module needs its library, which is an extra, and is imported by name."""
