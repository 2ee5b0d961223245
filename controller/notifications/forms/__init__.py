"""What each type of FlagProvider is posted: chats, incident tools, commit statuses, machines."""
