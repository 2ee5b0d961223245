"""Prepares each document before it is merged: decryption, substitution, patches."""
