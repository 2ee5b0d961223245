"""Verifies signatures and finds the signer, independent of the kind of source."""
