"""The cache of a cluster's objects, and the ports to write them."""
