"""What serves a port: listener, TLS, limits, the scheduler."""
