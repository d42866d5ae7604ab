"""Failures of a job, as exit codes.

The rule: whatever a job cannot do exactly, it says with one of these; anything else that escapes is a defect.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.ending import End

EXIT_DONE = 0
EXIT_INCOMPLETE = 2
EXIT_DATA_LOSS = 3
EXIT_USAGE = 4

COMMAND = ("barnabas-pipeline",)
ENDS = (
    End("the job is done", COMMAND, EXIT_DONE),
    End("Ctrl-C or SIGTERM, of a stream", COMMAND, EXIT_DONE),
    End("Ctrl-C or SIGTERM, of another job", COMMAND, EXIT_INCOMPLETE),
    End(
        "not everything is there, no broker answers, standard output cannot be written",
        COMMAND,
        EXIT_INCOMPLETE,
    ),
    End("records that should be there are not", COMMAND, EXIT_DATA_LOSS),
    End("an option is wrong", COMMAND, EXIT_USAGE),
    End("a defect, with its traceback", COMMAND, 1),
)
"""The rows of the reference."""


class PipelineError(Exception):
    """A job cannot go on; the text is for the person who started it."""

    exit_code = EXIT_INCOMPLETE


class UsageError(PipelineError):
    """The options are wrong, or do not fit what is there."""

    exit_code = EXIT_USAGE


class NoTopicError(UsageError):
    """There is no such topic."""


class IncompleteError(PipelineError):
    """Not everything that was asked for is there (yet), or another writer was faster; run again."""

    exit_code = EXIT_INCOMPLETE


class MissingOffsets(NamedTuple):
    """Offsets [start, end) of a partition that are gone; `end` None: up to an end that nobody has seen."""

    partition: int
    start: int
    end: int | None

    def __str__(self) -> str:
        return f"partition {self.partition}: [{self.start}, {'?' if self.end is None else self.end})"


class DataLossError(PipelineError):
    """Records that should be there are not; `missing` names them to the offset."""

    exit_code = EXIT_DATA_LOSS

    def __init__(self, cause: str, missing: list[MissingOffsets]) -> None:
        super().__init__(f"{cause}; missing: {', '.join(map(str, missing)) or 'nothing that was known of'}")
        self.cause = cause
        self.missing = missing
        self.can_go_on = True  # once the loss was recorded
