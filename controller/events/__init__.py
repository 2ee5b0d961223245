"""Notifications about flags, which are sent, and webhooks of Git servers, which are received."""
