"""`flagstaff up`: the stages of a cluster, and an evaluator, in one process."""
