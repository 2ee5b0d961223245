"""Verbs that show the objects of a cluster."""
