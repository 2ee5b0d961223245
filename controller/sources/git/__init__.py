"""Git: one of the backends of sources."""
