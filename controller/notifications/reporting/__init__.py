"""Which Events an alert reports, when, and in which words."""
