"""flagd.evaluation.v1 and v2, by gRPC, gRPC-Web and Connect."""
