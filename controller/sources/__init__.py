"""Stage 1: where definitions live → an artifact. `backend` is the port; each backend has a folder."""
