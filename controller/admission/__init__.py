"""What pods become as they enter the cluster: the webhook that injects evaluators."""
