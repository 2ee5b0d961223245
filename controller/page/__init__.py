"""The page: what is on for whom, who changed it and when, and whether every evaluator has it."""
