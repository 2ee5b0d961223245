"""Sends messages to the servers that users name."""
