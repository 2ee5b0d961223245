"""Gives a pod that asks for it an evaluator: what it asks for is read, made, and added to it."""
