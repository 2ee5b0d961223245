"""The kinds of progressive delivery: FlagRollout and MetricTemplate."""
