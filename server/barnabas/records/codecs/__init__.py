"""The compressed streams of records, one module per codec, each imported when it is first needed.

The rule: `decompress` stops as soon as its output would exceed `bytes_max`, and takes a stream only whole: a
stream that breaks off or has bytes after its end is corrupt.
"""
