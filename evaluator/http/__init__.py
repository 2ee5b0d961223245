"""A server of HTTP/1.1, HTTP/2, gRPC, gRPC-Web and Connect on one port; `routes` maps paths to handlers."""
