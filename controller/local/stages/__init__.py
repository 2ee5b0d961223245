"""The stages of a cluster over objects in memory, for local mode."""
