"""Stage 1: Git → a directory at a revision."""
