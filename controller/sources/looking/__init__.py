"""When a source is looked at again, and for how long."""
