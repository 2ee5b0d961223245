"""Checks of flags and rules."""
