"""What a FlagSource reads from, and what of it must be signed: parts of its spec."""
