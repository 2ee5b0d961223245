"""The server's side of HTTP/2 (RFC 9113)."""
