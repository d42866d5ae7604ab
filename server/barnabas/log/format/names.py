"""Names of files and directories below a log dir.

The rule: names are parsed only here. A name that Kafka would not have given is reported as unknown.

    <topic>-<partition>/                      a partition
    <topic>-<partition>.<hex>-delete/         deleted; its files are removed later
    <topic>-<partition>.<hex>-future/         being moved here from another log dir (KIP-113)
    <topic>-<partition>.<hex>-stray/          no longer assigned to this broker
    <20 digits>.{log,index,timeindex,txnindex,snapshot}[.deleted|.cleaned|.swap]
    <20 digits>.log.damaged-<offset>         damaged bytes cut out of a log (ours; Kafka ignores it)
    <20 digits>.log.truncated-<hex>          a follower's records that its leader lacks (ours; Kafka ignores it)
    <20 digits>-<10 digits>.checkpoint       a snapshot of the metadata log: end offset and epoch (KIP-630)
    tiered-start                             the log begins after the records in tiered storage (ours; Kafka ignores it)
    undecided-<offset>                       an operator has to decide on bytes cut out there (ours; Kafka ignores it)
"""

import re
from enum import Enum
from typing import NamedTuple

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
DAMAGED = ".damaged-"
"""In a log file's name, before an offset: bytes cut out there as damaged, kept for inspection."""
TRUNCATED = ".truncated-"
"""In a log file's name: all records of a follower, committed ones too, if its leader has none of them."""

UNDECIDED = "undecided-"
"""Before an offset of an internal topic: its coordinator lacks records cut out there until an operator decides."""

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
TIERED_START = "tiered-start"
"""Of a partition: its log begins after the records in tiered storage (ours; Kafka ignores it)."""
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
BOOT_ID = ".barnabas-boot-id"
"""Of a log dir: the run of the machine in which it was opened (ours; Kafka ignores it)."""
CHECKPOINT = ".checkpoint"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
CLUSTER_METADATA_DIR = f"{CLUSTER_METADATA_TOPIC}-0"
INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
LOCAL_TOPICS = INTERNAL_TOPICS | {CLUSTER_METADATA_TOPIC, "__remote_log_metadata"}
"""Topics that are never in tiered storage."""

TOPIC_NAME_LENGTH_MAX = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")

DIR_NAME_LENGTH_MAX = 255  # limit of common file systems for one name

_OFFSET_DIGITS = 20
_FILE = re.compile(
    r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?\Z"
)
_CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")
_PARTITION_DIR = re.compile(r"([a-zA-Z0-9._-]+)-(\d{1,10})\Z")
_MARKED_DIR = re.compile(r"([a-zA-Z0-9._-]+)-(\d{1,10})\.([a-zA-Z0-9_-]+)-(delete|future|stray)\Z")


def why_no_topic(name: str) -> str:
    """Return why a topic cannot have this name, by Kafka's rules; empty if it can."""
    if not name:
        return "the name is empty"
    if name in (".", ".."):
        return f"the name cannot be {name!r}"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"the name has {len(name)} characters; {TOPIC_NAME_LENGTH_MAX} are the most"
    if not _TOPIC_NAME.fullmatch(name):
        return f"the name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return ""


class DirKind(Enum):
    """Purpose of a partition's directory; the value is the suffix of its name."""

    CURRENT = ""
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


class PartitionDir(NamedTuple):
    """A parsed directory name; the topic of a deleted log may be truncated."""

    topic: str
    partition: int
    kind: DirKind


class SegmentFile(NamedTuple):
    """A parsed file name: base offset, type (".log", ...), and mark ("", ".deleted", ...)."""

    base_offset: int
    suffix: str
    mark: str


def file_name(base_offset: int, suffix: str, mark: str = "") -> str:
    """Return the name of a file of the segment (or a snapshot) that begins at `base_offset`."""
    return f"{base_offset:0{_OFFSET_DIGITS}d}{suffix}{mark}"


def parse_file_name(name: str) -> SegmentFile | None:
    """Parse a file name; None if it belongs to no segment."""
    match = _FILE.match(name)
    return SegmentFile(int(match[1]), match[2], match[3] or "") if match else None


def parse_checkpoint_name(name: str) -> tuple[int, int] | None:
    """Parse the name of a metadata snapshot into (end offset, epoch); None for other names and incomplete snapshots."""
    match = _CHECKPOINT.match(name)
    return (int(match[1]), int(match[2])) if match else None


def is_kept(name: str) -> bool:
    """Return whether a file in a partition's directory has records that no log contains, kept for inspection."""
    return LOG + DAMAGED in name or LOG + TRUNCATED in name


def dir_name(topic: str, partition: int) -> str:
    """Return the name of a partition's directory."""
    return f"{topic}-{partition}"


def marked_dir_name(topic: str, partition: int, kind: DirKind, unique: str) -> str:
    """Return the name of a deleted, future or stray directory of a partition; `unique` is 32 hex digits.

    A topic name that would make it too long for file systems is truncated, as in Kafka.
    """
    assert kind is not DirKind.CURRENT
    tail = f"-{partition}.{unique}-{kind.value}"
    return topic[: DIR_NAME_LENGTH_MAX - len(tail)] + tail


def parse_dir_name(name: str) -> PartitionDir | None:
    """Parse a directory name; None if it is not a partition's."""
    if match := _MARKED_DIR.match(name):
        return PartitionDir(match[1], int(match[2]), DirKind(match[4]))
    if match := _PARTITION_DIR.match(name):
        return PartitionDir(match[1], int(match[2]), DirKind.CURRENT)
    return None
