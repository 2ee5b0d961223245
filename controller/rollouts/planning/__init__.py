"""What a FlagRollout would do with a change of flags: for `flagstaff rollout plan`. Pure."""
