"""The only package that uses kopf: it puts the events of watches into the cache, which wakes keys."""
