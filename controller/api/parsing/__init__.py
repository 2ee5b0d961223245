"""Texts in specs, read by the same functions for whoever judges a spec and for whoever uses it. Pure."""
