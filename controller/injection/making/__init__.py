"""Makes the evaluator's container, its volumes, and the variables of applications."""
