"""Injects an evaluator: makes a container of what a pod asks for, and adds it to the pod. Pure."""
