"""The posts to each type of FlagProvider: chats, incident tools, commit statuses, machines."""
