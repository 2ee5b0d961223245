"""Verbs about rollouts: how far one is, what a person asks of it, and what a change would do."""
