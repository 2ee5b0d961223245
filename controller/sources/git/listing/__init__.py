"""A remote's references, and which of them is meant."""
