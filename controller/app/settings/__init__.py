"""Settings of each process: fields, their values as texts, and where they are read."""
