"""Documents to one flag set, and the flag set to the objects that deliver it."""
