"""What a release is made of."""
