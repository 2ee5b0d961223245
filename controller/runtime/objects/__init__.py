"""The objects of a cluster as this process knows them, and how it writes them."""
