"""The webhooks: evaluators are injected into pods, and bad flags written by hand are refused."""
