"""Errors by fault: the three ways in which serving a client can fail.

The rule: the type of an error shows which side must act. A peer that sends malformed frames loses its connection, an
impossible request is answered with an error code, and a disk that fails takes its log dir offline. Any other exception is
our own bug.
"""

from errno import EDQUOT, EMFILE, ENFILE, ENOSPC
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class PeerError(Exception):
    """The other side sent bytes that are no message of the protocol: close that connection, nothing else."""


class UnansweredError(PeerError):
    """A request without a response: its connection is closed."""


class NotLoggedInError(PeerError):
    """The peer sent a request that its login does not allow, or no longer allows: its connection is closed."""


class RequestError(Exception):
    """The request cannot be fulfilled: answer with `code` (Kafka's) and, where there is room, `message`."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return (
            f"{self.message} (error code {int(self.code)})"
            if self.message
            else f"error code {int(self.code)}"
        )


def detached(error: E) -> E:
    """Return a caught error that is kept for later, without its traceback and without its cause.

    The traceback has the frames that the error has passed, and these have the request and its answers, with the error in
    them: a cycle, which would stay in memory until the next full garbage collection.
    """
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def leaves(error: BaseException) -> list[BaseException]:
    """Return the errors in a group and in the groups within it; an error by itself, alone."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in leaves(inner)]


_NO_ROOM = (ENOSPC, EDQUOT)
_NO_MORE_FILES = (EMFILE, ENFILE)


def lacks_room(error: BaseException) -> bool:
    """Return whether the disk, or this user's quota on it, is full."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def lacks_files(error: BaseException) -> bool:
    """Return whether a file could not be opened because too many are open already."""
    return isinstance(error, OSError) and error.errno in _NO_MORE_FILES


class StorageError(Exception):
    """Reading or writing below `log_dir` failed because of `cause`: it goes offline, except for some that are `is_full`."""

    def __init__(self, log_dir: str, cause: BaseException) -> None:
        super().__init__(log_dir, cause)
        self.log_dir = log_dir
        self.cause = cause

    @property
    def is_full(self) -> bool:
        """True if only room is missing, on the disk or for another open file.

        Then earlier writes are intact, and the dir need not go offline.
        """
        return lacks_room(self.cause) or lacks_files(self.cause)

    @property
    def is_missing(self) -> bool:
        """True if a file or directory was missing: that does not mean that the disk has failed.

        The cause must be determined before a log or dir goes offline.
        """
        return isinstance(self.cause, FileNotFoundError)

    def __str__(self) -> str:
        return f"log dir {self.log_dir}: {self.cause}"


class AnswerError(Exception):
    """A request over HTTP that fails: a status, and the reason."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)  # as it is made again on its way from a child process
        self.status = status
        self.text = text

    def __str__(self) -> str:
        return self.text
