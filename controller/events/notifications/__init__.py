"""Alerts select Events; the provider's status keeps the resulting messages until they are delivered."""
