"""Where flags come from: files, HTTP, gRPC and object stores, each followed on its own."""
