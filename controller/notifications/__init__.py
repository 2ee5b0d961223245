"""Alerts choose among Events, and what they choose waits in its provider's status until it is delivered."""
