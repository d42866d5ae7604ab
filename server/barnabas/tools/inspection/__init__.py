"""Traffic on a connection, made readable: frames to messages, messages to JSON, records and logins decoded. Pure.

The rule: nothing that came from outside raises; what cannot be decoded is said. Secrets are masked.
"""
