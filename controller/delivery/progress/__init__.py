"""What is served other than Git says for a while: overrides and rollouts. Pure."""
