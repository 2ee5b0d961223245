"""What is made of that: the container of the evaluator, its volumes, and variables of applications."""
