"""The webhook that injects evaluators into pods as they are created."""
