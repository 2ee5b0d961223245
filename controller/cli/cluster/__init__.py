"""Verbs of who runs a cluster."""
