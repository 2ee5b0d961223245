"""The shared model: what a flag set is and how it is read. Pure: no I/O, no clock."""
