"""Verbs that run until they are stopped: they serve or control."""
