"""Addresses, names and TLS of the servers that users name."""
