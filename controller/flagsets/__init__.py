"""Stage 3: an artifact → one flag set, last good wins."""
