"""FlagAlerts select Events; the outbox keeps the resulting messages until they are delivered."""
