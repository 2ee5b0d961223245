"""Verbs that need no cluster: `flagstaff up` runs the stages of a cluster and an evaluator in one process."""
