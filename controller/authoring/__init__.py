"""What authors do with flags before and after they are served: pure over definitions, files and contexts."""
