"""Whether a revision may be believed: signatures, ancestry, and who may sign which path."""
