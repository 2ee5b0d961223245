"""Injects an evaluator: reads the settings of a pod, makes a container of them, and adds it to the pod."""
