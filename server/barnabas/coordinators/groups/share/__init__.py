"""Members of share groups (KIP-932): their records are in `__consumer_offsets`, so they are here and not in `share`.

Pure.
"""
