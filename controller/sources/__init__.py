"""Stage 1: where definitions live → an artifact. `provider` is the port; each provider has a folder."""
