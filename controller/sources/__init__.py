"""Stage 1: where definitions live → files at a revision → an artifact. `provider` is the port; each provider
has a folder.
"""
