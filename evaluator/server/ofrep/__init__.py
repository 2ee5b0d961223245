"""OFREP: answers to requests, and the stream that asks clients to request again."""
