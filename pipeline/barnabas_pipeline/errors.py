"""Failures of a job, as exit codes.

The rule: a job that cannot do its work exactly raises one of these; any other error is a bug.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.ending import End

EXIT_DONE = 0
EXIT_DEFECT = 1
EXIT_INCOMPLETE = 2
EXIT_DATA_LOSS = 3
EXIT_USAGE = 4
WORST_FIRST = (EXIT_DATA_LOSS, EXIT_DEFECT, EXIT_USAGE, EXIT_INCOMPLETE)
TOPICS_TOLD_MAX = 20

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
    End("a defect, with its traceback", COMMAND, EXIT_DEFECT),
)
"""The exit codes and their meanings, as printed in the reference."""


class PipelineError(Exception):
    """A job cannot continue; the text is shown to the user."""

    exit_code = EXIT_INCOMPLETE


class UsageError(PipelineError):
    """The options are wrong, or contradict the table, the topic or the catalog."""

    exit_code = EXIT_USAGE


class NoTopicError(UsageError):
    """The topic does not exist."""


class IncompleteError(PipelineError):
    """A requested resource is not available (yet), or another writer was faster; run again."""

    exit_code = EXIT_INCOMPLETE


class MissingOffsets(NamedTuple):
    """Offsets [start, end) of a partition that no longer exist; `end` None: the end is unknown."""

    partition: int
    start: int
    end: int | None

    def __str__(self) -> str:
        return f"partition {self.partition}: [{self.start}, {'?' if self.end is None else self.end})"


class DataLossError(PipelineError):
    """Expected records are missing; `missing` names them by offset."""

    exit_code = EXIT_DATA_LOSS

    def __init__(self, cause: str, missing: list[MissingOffsets]) -> None:
        super().__init__(f"{cause}; missing: {', '.join(map(str, missing)) or 'nothing that was known of'}")
        self.cause = cause
        self.missing = missing
        self.can_go_on = True  # after recording the loss

    def __reduce__(self) -> tuple[type[DataLossError], tuple[str, list[MissingOffsets]]]:
        """Support pickling, so that a worker's error reaches the driver."""
        return DataLossError, (self.cause, self.missing)


class DefectError(PipelineError):
    """A defect of the pipeline stopped one topic of many; its traceback was printed."""

    exit_code = EXIT_DEFECT


class TopicsError(PipelineError):
    """Some topics of many have failed; the exit code is that of the worst failure."""

    def __init__(self, failures: Mapping[str, PipelineError], count: int) -> None:
        rank = {name: WORST_FIRST.index(error.exit_code) for name, error in failures.items()}
        worst = sorted(failures, key=lambda name: (rank[name], name))
        told = [f"{name}: {failures[name]}" for name in worst[:TOPICS_TOLD_MAX]]
        if len(worst) > len(told):
            told.append(f"and {len(worst) - len(told)} more")
        super().__init__(f"{len(failures)} of {count} topics have failed: {'; '.join(told)}")
        self.exit_code = WORST_FIRST[rank[worst[0]]]
