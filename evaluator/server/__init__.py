"""Whom flags are served to: gRPC, OFREP and management."""
