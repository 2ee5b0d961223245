"""Who may read what: bearer tokens, the cluster's reviews of them, and what is refused."""
