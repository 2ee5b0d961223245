"""Stage 5: flags that are not served as Git says, for a while: FlagOverrides."""
