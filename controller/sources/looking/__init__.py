"""Determines when a source is looked at again, and how long a look may take."""
