"""Long-term memory without a store: tokens, vectors, and how what was found is ranked."""
