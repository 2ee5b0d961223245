"""Delivers the messages of alerts: each type of FlagProvider makes a request of a message."""
