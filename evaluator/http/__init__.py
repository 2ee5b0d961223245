"""HTTP/1.1 and HTTP/2 on one port and one loop: frames below, handlers above, `routes` between them."""
