"""Reads the annotations of a pod and the objects that they name."""
