"""Stage 4: flag sets to any number of evaluators, and their receipts back."""
