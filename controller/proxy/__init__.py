"""Stage 5: streams flag sets to any number of evaluators, and counts the receipts that come back."""
