"""Files of a controller's metadata dir before its first start: records of a new cluster, and its first voters (KIP-853).

The rule: the files equal those of `kafka-storage format`, so that controllers of Kafka and ours can start with either.
`meta.properties` is written last: it marks the dir as formatted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.cluster.kraft.directory import DIRECTORY
from barnabas.cluster.kraft.feature_levels import LEVEL, formatting_records
from barnabas.cluster.kraft.image import EMPTY, Position, QuorumImage
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.raft.values import KRAFT_VERSIONS
from barnabas.cluster.kraft.replay import Replay
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.cluster.kraft.transitions import MetadataRecordError
from barnabas.cluster.kraft.values import Voter
from barnabas.config.releases import is_at_least
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.records.errors import RecordsError
from barnabas.wire.errors import DecodeError
from barnabas.wire.ids import parse_uuid
from barnabas.wire.metadata_records import decode_record

if TYPE_CHECKING:
    from barnabas.log.disk import Disk

BOOTSTRAP: Final = "bootstrap.checkpoint"
FIRST_VOTERS: Final = f"{DIRECTORY}/{0:020d}-{0:010d}.checkpoint"


def bootstrap_file(records: Iterable[Any], now_ms: int) -> bytes:
    """Return the content of `bootstrap.checkpoint`. Raises MetadataRecordError for records that contradict each other."""
    from barnabas.cluster.kraft.snapshots import snapshot_batches

    replay = Replay()
    for record in records:
        replay.apply(record)
    return b"".join(snapshot_batches(replay.publish(Position(-1, 0, 0)), Leadership(), now_ms=now_ms))


def first_voters_file(voters: Sequence[Voter], now_ms: int) -> bytes:
    """Return the content of the snapshot with the first voters, for a quorum with voters in its log."""
    from barnabas.cluster.kraft.snapshots import snapshot_batches

    image = EMPTY._replace(position=Position(-1, 0, now_ms))
    return b"".join(snapshot_batches(image, Leadership(voters=tuple(voters), kraft_version=1), now_ms=now_ms))


def read_bootstrap(disk: Disk, log_dir: str, release: str = "") -> tuple[Any, ...]:
    """Return the records of the bootstrap file with which a cluster's first leader begins.

    Without a file they are those of a new cluster, at the levels of the broker's release, empty for the newest.

    Raises MetadataLogError for a damaged file, OSError.
    """
    path = f"{log_dir}/{BOOTSTRAP}"
    try:
        content = disk.read(path)
    except FileNotFoundError:
        return formatting_records(first_level(release))
    try:
        return tuple(
            decode_record(record.value or b"")[0]
            for position, header in iter_batches(content)
            if not header.is_control
            for record in iter_any_records(content[position : position + header.size])
        )
    except (RecordsError, DecodeError) as error:
        raise MetadataLogError(f"{path}: {error}") from None


def begun_image(
    disk: Disk, log_dir: str, image: QuorumImage, release: str = ""
) -> tuple[QuorumImage, tuple[Any, ...]]:
    """Return the image of a new cluster's log, and its first records; no records if the log has begun.

    Raises as `read_bootstrap` does.
    """
    if image.metadata_version:
        return image, ()
    records = read_bootstrap(disk, log_dir, release)
    replay = Replay(image)
    try:
        for record in records:
            replay.apply(record)
    except MetadataRecordError as error:
        raise MetadataLogError(f"{log_dir}/{BOOTSTRAP}: {error}") from None
    return replay.publish(image.position), records


def parse_voters(text: str, listener: str) -> tuple[Voter, ...]:
    """Return the voters in `ID@HOST:PORT:DIRECTORY,...`, at the addresses of a listener. Raises ValueError."""
    voters = []
    for item in text.split(","):
        node, _, words = item.strip().partition("@")
        address, _, directory = words.rpartition(":")
        host, _, port = address.rpartition(":")
        is_literal = host.startswith("[") and host.endswith("]")
        if (
            not (node.isdecimal() and port.isdecimal() and 0 < int(port) < 65536)
            or not host.strip("[]")
            or (":" in host and not is_literal)
        ):
            raise ValueError(f"{item.strip()!r} is not of the form ID@HOST:PORT:DIRECTORY")
        try:
            directory_id = parse_uuid(directory)
        except ValueError:
            raise ValueError(f"{directory!r} in {item.strip()!r} is no id of a directory") from None
        endpoint = (listener, host.strip("[]"), int(port))
        voters.append(Voter(int(node), directory_id, (endpoint,), KRAFT_VERSIONS))
    if len({voter.id for voter in voters}) < len(voters):
        raise ValueError("two of them have the same id")
    return tuple(voters)


def first_level(release: str) -> int:
    """Return the metadata.version of new log dirs of a release, empty for the newest."""
    return LEVEL if is_at_least(release, "4.4") else level_of("4.3")


def level_of(release: str) -> int:
    """Return the metadata.version of a release such as `4.3` or `4.2-IV1`. Raises ValueError."""
    line, _, step = release.strip().partition("-")
    name = ".".join(line.split(".")[:2])
    first, last = _LEVELS.get(name, (0, -1))
    level = first + int(step.removeprefix("IV")) - _STEPS_FROM.get(name, 0) if step[2:].isdecimal() else last
    if not first <= level <= last:
        raise ValueError(f"{release!r} is no release with a metadata.version; there are {', '.join(_LEVELS)}")
    return level


_LEVELS: Final = {
    "3.3": (7, 7), "3.4": (8, 8), "3.5": (9, 11), "3.6": (12, 14), "3.7": (15, 19), "3.8": (20, 20), "3.9": (21, 21),
    "4.0": (22, 25), "4.1": (26, 27), "4.2": (28, 29), "4.3": (30, 30), "4.4": (31, 33),
}  # fmt: skip
"""First and last metadata.version of each release."""
_STEPS_FROM: Final = {"3.3": 3}
"""IV number of a release's first metadata.version, where it is not 0."""
