"""Verbs for authors of flags: they check, try and publish definitions, and ask what is served."""
