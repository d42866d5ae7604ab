"""The files of a log directory as values: names, indexes, checkpoints, snapshots.

The rule: bytes or text in, values out, and back. Nothing here opens a file.
"""


class CorruptFileError(Exception):
    """A file beside the log is damaged; it must not be trusted, but its content may be rebuilt."""
