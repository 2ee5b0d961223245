"""Git: one of the providers of definitions."""
