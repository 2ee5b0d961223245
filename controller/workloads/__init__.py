"""What runs for users: standalone evaluators, of the kind Flagd."""
