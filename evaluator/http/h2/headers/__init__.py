"""Header fields: compressed as HPACK (RFC 7541), and which of them make a request."""
