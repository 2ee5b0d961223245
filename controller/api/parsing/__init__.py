"""Parsers of the texts in specs, shared by those who validate a spec and those who use it. Pure."""
