"""Definitions of other products: one reader for each format, one model, and one writer of ours. Pure."""
