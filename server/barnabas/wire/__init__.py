"""The wire protocol: primitives, framing, headers, and one generated module per API.

The rule: bytes in, messages out, and back. Nothing here reads a clock, opens a file or knows the connection.
"""
