"""Verbs about the objects of a cluster: they show them, ask for a reconcile, and change them."""
