"""Sources of flags: files, HTTP, gRPC and object stores, each followed independently."""
