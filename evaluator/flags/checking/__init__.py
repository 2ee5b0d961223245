"""What is wrong with a flag or a rule."""
