"""Header fields on the wire: HPACK (RFC 7541), and what HTTP/2 allows of fields."""
