"""What is served of a flag set, to whom, why, and what to do: the one answer for people. Pure."""
