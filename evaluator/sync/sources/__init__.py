"""One module for each kind of source, and their shared connections."""
