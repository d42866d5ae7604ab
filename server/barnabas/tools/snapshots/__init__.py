"""`barnabas snapshot`: snapshots of a broker's data in a bucket or a directory, for other machines and other days.

The rule: bytes are stored once, under their checksum; a snapshot exists when its record is written, after all else.
"""
