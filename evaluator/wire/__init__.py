"""The flagd.sync protocol for evaluator and proxy: hub, payload, messages, servicer."""
