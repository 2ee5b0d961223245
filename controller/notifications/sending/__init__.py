"""How a message reaches a server that a user named."""
