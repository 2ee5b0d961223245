"""The state machine of a FlagRollout. Pure."""
