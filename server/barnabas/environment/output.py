"""Standard output that cannot be written: a full disk, a closed pipe, a lost terminal.

The rule: that is one line on standard error and an exit code, never a traceback.
"""

from __future__ import annotations

import errno
import os
import sys

ERRORS = (errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EDQUOT, errno.EBADF)
"""Numbers of the errors with which writing to standard output fails."""


def explain(error: OSError) -> str | None:
    """Return the message for an error of standard output; None for other errors.

    Unwritten output is dropped, or Python would try again when the process ends and print a traceback.
    """
    if error.filename is not None or error.errno not in ERRORS:
        return None
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return f"cannot write to standard output: {error.strerror}"
