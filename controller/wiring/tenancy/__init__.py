"""Quotas and allowed hosts, by the settings."""
