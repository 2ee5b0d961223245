"""What is served now: swapped whole, kept on disk, and asked in one way by all protocols."""
