"""Connections and their requests: bytes in, one request after the other through its stages, bytes out."""
