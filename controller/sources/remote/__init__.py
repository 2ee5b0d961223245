"""Servers of flags that an object merges with its own: by HTTP, and by flagd.sync."""
