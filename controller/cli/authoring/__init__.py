"""Verbs of who writes flags: definitions are checked, tried and published, and what is served is asked."""
