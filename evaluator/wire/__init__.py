"""What evaluator and proxy need to speak flagd.sync: hub, payload, messages, servicer."""
