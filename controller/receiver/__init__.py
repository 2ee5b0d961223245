"""Webhooks of Git servers, which wake the sources of what was pushed."""
