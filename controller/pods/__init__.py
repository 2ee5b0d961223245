"""Pods: injects, runs and restarts evaluators, and judges flags at admission."""
