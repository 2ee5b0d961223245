"""Verifies revisions: signatures, ancestry, and who may sign which path."""
