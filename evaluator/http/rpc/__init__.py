"""Remote procedure calls: gRPC, Connect and gRPC-Web."""
