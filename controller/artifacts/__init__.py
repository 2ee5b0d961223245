"""Stage 2: a directory → an immutable, digested archive."""
