"""Arguments with which the log of a partition is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.log.config import LogConfig
    from barnabas.log.disk import Disk
    from barnabas.log.openfiles import OpenFiles
    from barnabas.log.recovery.loading import LoadedLog
    from barnabas.log.removal.pending import Trash


class LogParts(NamedTuple):
    """The place of a log, its shared resources, and its loaded content.

    `topic_id` is None if the directory has none; `now_ms` is the time of opening.
    """

    log_dir: str
    config: LogConfig
    disk: Disk
    pool: OpenFiles
    trash: Trash
    loaded: LoadedLog
    topic_id: bytes | None
    high_watermark: int
    now_ms: int
