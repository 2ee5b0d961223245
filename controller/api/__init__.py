"""Our kinds: what users write, what we answer. Models and names, nothing that acts."""
