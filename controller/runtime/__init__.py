"""The loop that all kinds share, and the ways in which a step can fail."""
