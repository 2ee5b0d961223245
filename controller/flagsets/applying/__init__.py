"""Writes the objects that deliver a flag set, and removes what is outdated."""
