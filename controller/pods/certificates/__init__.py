"""Certificates that the controller makes and renews: of its webhook, and of the proxy."""
