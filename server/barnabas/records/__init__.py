"""Records as Kafka stores and sends them: batches, legacy message sets, compression, conversion, validation.

The rule: bytes in, values out. Nothing here reads a clock, opens a file or knows the request.
"""
