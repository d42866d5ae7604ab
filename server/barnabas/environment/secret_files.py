"""Secrets that a file holds, so that no command line shows them.

The rule: a file that others may read or change holds no secret.
"""

from __future__ import annotations

import os
import stat


class SecretError(ValueError):
    """A file that holds no secret; the text names it."""


def secret_of_file(path: str) -> str:
    """Return the first line of a file. Raises SecretError, also for a file that others may read."""
    return text_of_secret_file(path).partition("\n")[0].rstrip("\r")


def text_of_secret_file(path: str) -> str:
    """Return the text of a file. Raises SecretError, also for a file that others may read."""
    try:
        with open(path, encoding="utf-8") as file:
            text, mode = file.read(), os.fstat(file.fileno()).st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise SecretError(f"{path}: {getattr(error, 'strerror', error)}") from None
    if mode & 0o077 and stat.S_ISREG(mode):
        raise SecretError(f"{path} holds a secret and others may read or change it: chmod 600 {path}")
    return text
