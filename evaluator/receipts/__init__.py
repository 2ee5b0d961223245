"""Receipts: report to a server what is served of a source, whatever kind of source it is."""
