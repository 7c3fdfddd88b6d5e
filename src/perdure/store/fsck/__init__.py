"""Whether what is stored is consistent: what both dialects share."""
