"""The loop that all kinds share: keys in a queue, one reconcile at a time, its result as conditions."""
