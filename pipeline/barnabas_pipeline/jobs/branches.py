"""publish: audits a branch, and moves main to it.

The rule: the audited snapshot is published, and only if main has not moved since the branch began.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.jobs.audit import audit, raise_if_lossy
from barnabas_pipeline.jobs.compare import Differences, compare
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.lake import commits
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.iceberg import MAIN, Place, check_writable, place_of
from barnabas_pipeline.lake.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class PublishSummary:
    """The branch that was published or dropped: its snapshot and version, with rows and offsets of the audit."""

    branch: str
    snapshot: int = 0
    version: int = 0
    offsets: int = 0
    loaded: int = 0
    dead: int = 0
    tag: str = ""


def check(root: Place | str) -> Table:
    """Return the table of a branch that may be published. Raises UsageError for other branches."""
    table = Table(root)
    table.loaded()
    branch = table.place.branch
    if branch not in commits.branches_of(table.existing):
        raise UsageError(f"table {table.place.name} has no branch {branch}")
    check_writable(table.existing)
    commits.check_base(table.existing, branch)
    return table


def publish(
    spark: SparkSession,
    options: LoadOptions,
    *,
    tag: str = "",
    deep: bool = False,
    comparing: Callable[..., Differences] = compare,
) -> PublishSummary:
    """Audit a branch, and move main to the audited snapshot. The branch is removed afterwards.

    Raises DataLossError if it is not exact, UsageError if main has moved, IncompleteError if the branch has moved.
    """
    table = check(options.root)
    branch, head = table.place.branch, table.existing.current_snapshot()
    assert head is not None
    if tag and tag in table.existing.metadata.refs:
        raise UsageError(f"--tag {tag}: table {table.place.name} has it already")
    report = audit(spark, options, now_ms=0, lateness_ms=0, seal=False, deep=deep, comparing=comparing)
    raise_if_lossy(report)
    again = check(options.root).existing
    if again.metadata.current_snapshot_id != head.snapshot_id:
        raise IncompleteError(
            f"branch {branch} of table {table.place.name} has moved during the audit: run again"
        )
    faults.point("publish.before_commit")
    commits.publish(again, branch, head.snapshot_id, tag)
    faults.point("publish.after_commit")
    DeadLetters(Table(replace(table.place, branch=MAIN))).publish()
    return PublishSummary(
        branch, head.snapshot_id, report.version, report.offsets, report.loaded, report.dead, tag
    )


def drop(root: Place | str) -> PublishSummary:
    """Remove a branch; a vacuum removes its files. Raises UsageError if it does not exist."""
    place = place_of(root)
    table = Table(replace(place, branch=MAIN))
    if table.iceberg is None:
        raise UsageError(f"there is no table {place.name}")
    return PublishSummary(place.branch, commits.drop(table.iceberg, place.branch))
