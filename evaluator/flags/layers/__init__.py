"""Merges documents and layers to a flag set, and the flag sets of several sources to a catalog."""
