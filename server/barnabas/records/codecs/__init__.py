"""The compressed streams of records, one module per codec, each imported when it is first needed.

The rule: `decompress` stops as soon as its output would exceed `bytes_max`, and accepts only whole streams: a stream that
is truncated or has bytes after its end is corrupt.
"""
