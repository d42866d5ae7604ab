"""Traffic on a connection, made readable: frames to messages, messages to JSON, records and logins decoded. Pure.

The rule: foreign input never raises; undecodable parts are marked. Secrets are masked.
"""
