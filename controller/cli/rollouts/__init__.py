"""Verbs about rollouts: what one is at, what a person tells it, and what a change would do."""
