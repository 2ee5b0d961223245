"""Verbs for operators of a cluster: they inspect it, wait for it, and migrate it."""
