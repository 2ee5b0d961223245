"""What watches a rollout: metrics, their tests, and webhooks."""
