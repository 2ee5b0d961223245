"""What stages share about objects that deliver flags: who claims a name, who serves, how far. Pure."""
