"""Limits on what each namespace may have and reach."""
