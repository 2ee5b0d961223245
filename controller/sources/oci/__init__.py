"""Artifacts in a container registry, as a source."""
