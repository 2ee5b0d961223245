"""Health, metrics and introspection of an evaluator."""
