"""Receipts: a server is told what is served of a source, whatever kind of source it is."""
