"""Runs workloads for users: standalone evaluators, of the kind Flagd."""
