"""Verbs about an installation: they make it, check it, and remove it."""
