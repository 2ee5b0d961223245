"""Reads what a pod asks for: its annotations, and the objects that they name. Pure."""
