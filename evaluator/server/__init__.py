"""Serves flags to clients: gRPC, OFREP and management."""
