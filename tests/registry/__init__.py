"""A real registry, what is pushed to it, and what goes wrong on the way."""
