"""Resuming: the position of a partition's mirror, read from the target.

The rule: the position is committed in the group of positions, by the same transaction as the records. Without a position
(offsets expire, older mirrors committed none), the newest source header in the target counts.
"""

from __future__ import annotations

import time

import trio

from barnabas.client import Client, GroupMetadata, TopicPartition
from barnabas.client.consuming.offsets import committed
from barnabas.client.errors import ResponseError
from barnabas.wire.generated.errors import ErrorCode
from barnabas_pipeline.errors import DataLossError, NoTopicError, UsageError
from barnabas_pipeline.jobs.mirror.model import (
    RECORD,
    Coordinates,
    Part,
    PartResult,
    check_identity,
    check_position,
)
from barnabas_pipeline.jobs.mirror.reading import coordinates_of, read_records
from barnabas_pipeline.log.model import Bounds, Log, OffsetRange
from barnabas_pipeline.log.transports import open_log

TAIL_OFFSETS = 100
NEW_TOPIC_SECONDS_MAX = 10.0
"""Most seconds until a broker knows a topic that was just created."""
NEW_TOPIC_POLL_SECONDS = 0.1


async def resume(client: Client, part: Part, result: PartResult) -> tuple[int, bool]:
    """Return (the next source offset that the target lacks, whether it was committed in the group of positions).

    Called after other mirrors are fenced. Raises DataLossError; a loss recorded by `on_data_loss` is added to `result`.
    """
    kept = position = await committed_position(client, part)
    if position is None:
        position = await trio.to_thread.run_sync(_newest_header, part)
    if position is None:
        return part.bound.start, False
    try:
        check_identity(part.place, part.source.topic, position)
        check_position(part.place, part.source.topic, position.offset, part.bound)
    except DataLossError as loss:
        if part.on_data_loss != RECORD:
            raise
        result.lost = str(loss)
        same = (position.cluster_id, position.topic_id) == (part.place.cluster_id, part.place.topic_id)
        is_shorter = same and position.offset > part.bound.high_watermark
        return part.bound.end if is_shorter else part.bound.start, False
    return position.offset, kept is not None


async def committed_position(client: Client, part: Part) -> Coordinates | None:
    """Return the position in the group, with the offset after it in the target. Raises ClientError."""
    place = part.place
    group, target = GroupMetadata(part.group), TopicPartition(place.target, place.partition)
    try:
        offsets = await client.retrying(lambda: committed(client, group, [target], stable=False))
    except ResponseError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    return place.parse_position(offsets[target].metadata) if target in offsets else None


def _newest_header(part: Part) -> Coordinates | None:
    """Return the coordinates of the newest record of this mirror in the target. Raises UsageError, DataLossError."""
    log, bounds = _open_target(part)
    try:
        return newest_header(log, part, bounds[part.place.partition])
    finally:
        log.close()


def _open_target(part: Part) -> tuple[Log, dict[int, Bounds]]:
    deadline = time.monotonic() + NEW_TOPIC_SECONDS_MAX
    while True:
        log = open_log(part.target)
        try:
            bounds = log.bounds()
            if part.place.partition in bounds or time.monotonic() > deadline:
                return log, bounds
        except NoTopicError:
            if time.monotonic() > deadline:
                log.close()
                raise
        log.close()
        time.sleep(NEW_TOPIC_POLL_SECONDS)


def newest_header(log: Log, part: Part, there: Bounds) -> Coordinates | None:
    """Search from the end, in ranges that double; if the topic is not shared, the newest record decides."""
    end, size = there.end, TAIL_OFFSETS
    while end > there.start:
        start = max(there.start, end - size)
        newest = None
        seen = False
        for record in read_records(log, OffsetRange(part.place.partition, start, end)):
            seen = True
            mine = [coordinates for coordinates in coordinates_of(record)[-1:] if _is_mine(part, coordinates)]
            newest = mine[0] if mine else (newest if part.shares_topics else None)
        if newest is not None:
            return newest._replace(offset=newest.offset + 1)
        if seen and not part.shares_topics:
            raise UsageError(
                f"{part.place.target}-{part.place.partition} ends with records that are not from a mirror; "
                "--shared lets the topic have those too"
            )
        end, size = start, size * 2
    return None


def _is_mine(part: Part, coordinates: Coordinates) -> bool:
    """Return whether coordinates are of this mirror; in a dedicated topic all are, and are checked later."""
    if not part.shares_topics:
        return coordinates.partition == part.place.partition
    return (coordinates.cluster_id, coordinates.topic_id, coordinates.partition) == (
        part.place.cluster_id,
        part.place.topic_id,
        part.place.partition,
    )
