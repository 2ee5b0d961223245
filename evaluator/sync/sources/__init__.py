"""One module for each kind of source, and the connections that they share."""
