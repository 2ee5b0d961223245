"""Receipts: who serves what, by flag set, and the FlagReceipt objects that say so."""
