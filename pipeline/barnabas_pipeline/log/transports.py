"""Opening a topic by its transport.

The rule: a transport is imported when it is used.
"""

from __future__ import annotations

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.log.model import READ_COMMITTED, READ_UNCOMMITTED, Log, LogOptions


def open_log(options: LogOptions) -> Log:
    """Open a topic by its transport. Raises UsageError."""
    if options.isolation not in (READ_COMMITTED, READ_UNCOMMITTED):
        raise UsageError(f"isolation is {READ_COMMITTED} or {READ_UNCOMMITTED}, not {options.isolation!r}")
    if options.transport == "disk":
        if not options.log_dirs:
            raise UsageError("transport disk needs the log dirs")
        from barnabas_pipeline.log.disk import DiskLog

        return DiskLog(options)
    if options.transport == "wire":
        if not options.bootstrap:
            raise UsageError("transport wire needs bootstrap servers")
        from barnabas_pipeline.log.wire import WireLog

        return WireLog(options)
    raise UsageError(f"transport is wire or disk, not {options.transport!r}")
