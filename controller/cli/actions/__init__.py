"""Verbs that change objects of a cluster, or ask for a reconcile of them."""
