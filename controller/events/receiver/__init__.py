"""Webhooks of Git servers: a push wakes the sources of its repository."""
