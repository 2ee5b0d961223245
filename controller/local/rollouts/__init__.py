"""FlagRollouts of `flagstaff up --rollout`: the reconcilers of a cluster, with one evaluator that serves."""
