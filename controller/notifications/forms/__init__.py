"""Requests for each type of FlagProvider: chats, incident tools, commit statuses, machines."""
