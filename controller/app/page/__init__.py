"""The page of a cluster: what it knows, what each caller may see of it, and who asks."""
