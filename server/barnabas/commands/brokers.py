"""`barnabas brokers`: the cluster itself: brokers, log dirs, features, moves of replicas, elections."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from barnabas.client import ClientError
from barnabas.client.administration.words import PREFERRED, SAFE_DOWNGRADE, UNCLEAN, UNSAFE_DOWNGRADE, UPGRADE
from barnabas.commands.errors import CommandError, name_of
from barnabas.commands.output import Table
from barnabas.commands.parsing import key_value, topic_partition
from barnabas.commands.session import Session, asking, confirm, destructive
from barnabas.environment.terminal import counted

CLUSTER = Table(
    "cluster",
    {
        "cluster_id": "cluster id",
        "controller": "broker that is named as the controller; null for none",
        "brokers": "number of brokers",
    },
    is_single=True,
)
BROKERS = Table(
    "brokers",
    {
        "broker": "broker id",
        "host": "host that it advertises",
        "port": "port that it advertises",
        "rack": "rack",
        "is_fenced": "true for a fenced broker; with --fenced",
    },
)
QUORUM = Table("quorum", {"leader": "active controller", "epoch": "its epoch"}, is_single=True)
NODES = Table(
    "nodes",
    {
        "node": "node id",
        "role": "voter or observer",
        "log_end_offset": "end of its metadata log",
        "lag": "records behind the leader",
        "fetched_at_ms": "when it has fetched last, in ms since 1970",
        "caught_up_at_ms": "time at which it last had all records, in ms since 1970",
    },
)
LOG_DIRS = Table(
    "log_dirs",
    {
        "broker": "broker id",
        "path": "directory",
        "replicas": "number of replicas",
        "size_bytes": "bytes of these",
        "total_bytes": "size of the volume; null if it is not told",
        "usable_bytes": "bytes that are free; null if they are not told",
        "error": "error; null for success",
    },
)
REPLICAS = Table(
    "replicas",
    {
        "broker": "broker id",
        "path": "directory",
        "topic": "topic",
        "partition": "number of the partition",
        "size_bytes": "bytes",
        "offset_lag": "offsets behind",
        "is_future": "true for a replica that is being moved there",
    },
)
FEATURES = Table(
    "features",
    {
        "feature": "name",
        "min_level": "lowest level that the broker supports",
        "max_level": "highest level that the broker supports",
        "finalized": "level in force; null for none",
    },
)
UPDATED = Table(
    "features",
    {
        "feature": "name",
        "level": "level",
        "outcome": "result of the change",
        "error": "error; null for success",
    },
)
REASSIGNMENTS = Table(
    "reassignments",
    {
        "topic": "topic",
        "partition": "number of the partition",
        "replicas": "brokers that hold it",
        "adding": "brokers that are being added",
        "removing": "brokers that are being removed",
        "error": "error; null for success",
    },
)
OUTCOMES = Table(
    "partitions",
    {
        "topic": "topic",
        "partition": "partition",
        "outcome": "result of the change",
        "error": "error; null for success",
    },
)
BROKER_OUTCOMES = Table("brokers", {"broker": "broker id", "outcome": "result of the change"})


@click.group("brokers")
def COMMAND() -> None:  # noqa: N802
    """Brokers, controllers, log dirs, features, replicas."""


@COMMAND.command("list")
@click.option("--fenced", is_flag=True, help="Also fenced brokers.")
@asking(CLUSTER, BROKERS)
async def list_brokers(session: Session, fenced: bool) -> None:
    """Show the cluster and its brokers."""
    cluster = await session.admin.describe_cluster(fenced=fenced)
    controller = cluster.controller_id if cluster.controller_id >= 0 else None
    session.output.show(
        CLUSTER,
        [{"cluster_id": cluster.cluster_id, "controller": controller, "brokers": len(cluster.brokers)}],
    )
    table = BROKERS if fenced else BROKERS._replace(json_only=("is_fenced",))
    session.output.show(
        table,
        [
            {
                "broker": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "is_fenced": broker.is_fenced if fenced else None,
            }
            for broker in cluster.brokers
        ],
    )


@COMMAND.command("quorum")
@asking(QUORUM, NODES)
async def quorum(session: Session) -> None:
    """Show the quorum of controllers, of a cluster in KRaft mode."""
    leader, epoch, nodes = await session.admin.quorum()
    session.output.show(QUORUM, [{"leader": leader, "epoch": epoch}])
    end = max((node.log_end_offset for node in nodes), default=0)
    session.output.show(
        NODES,
        [
            {
                "node": node.node_id,
                "role": node.role,
                "log_end_offset": node.log_end_offset,
                "lag": end - node.log_end_offset,
                "fetched_at_ms": node.fetched_at_ms if node.fetched_at_ms >= 0 else None,
                "caught_up_at_ms": node.caught_up_at_ms if node.caught_up_at_ms >= 0 else None,
            }
            for node in nodes
        ],
    )


@COMMAND.command("log-dirs")
@click.option(
    "--broker", "brokers", type=int, multiple=True, metavar="ID", help="Only this broker; may be repeated."
)
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME", help="Only replicas of this topic; may be repeated."
)
@click.option("--replicas", is_flag=True, help="Show each replica.")
@asking(LOG_DIRS, REPLICAS)
async def log_dirs(
    session: Session, brokers: tuple[int, ...], topics: tuple[str, ...], replicas: bool
) -> None:
    """Show log dirs with their sizes."""
    for topic in (await session.admin.topics(topics)).values() if topics else ():
        if isinstance(topic, ClientError):
            raise topic
    by_broker = await session.admin.log_dirs(brokers or None)
    rows: list[dict[str, Any]] = []
    each: list[dict[str, Any]] = []
    for broker, dirs in by_broker.items():
        if isinstance(dirs, ClientError):
            rows.append({"broker": broker, "error": name_of(dirs)})
            continue
        for log_dir in dirs:
            shown = [replica for replica in log_dir.replicas if not topics or replica.topic in topics]
            rows.append(
                {
                    "broker": broker,
                    "path": log_dir.path,
                    "replicas": len(shown),
                    "size_bytes": sum(replica.size_bytes for replica in shown),
                    "total_bytes": log_dir.total_bytes if log_dir.total_bytes >= 0 else None,
                    "usable_bytes": log_dir.usable_bytes if log_dir.usable_bytes >= 0 else None,
                    "error": None if log_dir.error is None else name_of(log_dir.error),
                }
            )
            each += [
                {
                    "broker": broker,
                    "path": log_dir.path,
                    "topic": replica.topic,
                    "partition": replica.partition,
                    "size_bytes": replica.size_bytes,
                    "offset_lag": replica.offset_lag,
                    "is_future": replica.is_future,
                }
                for replica in shown
            ]
    session.output.show(LOG_DIRS, rows)
    if replicas or session.output.as_json:
        session.output.show(REPLICAS, each)


@COMMAND.command("move")
@click.argument("partitions", nargs=-1, required=True, type=topic_partition, metavar="TOPIC:PARTITION...")
@click.option("--broker", type=int, required=True, metavar="ID", help="The broker that holds the replicas.")
@click.option(
    "--to",
    "path",
    required=True,
    metavar="DIR",
    help="Target log dir of the same broker, as `log-dirs` shows it.",
)
@asking(OUTCOMES)
async def move(
    session: Session, partitions: tuple[tuple[str, int | None], ...], broker: int, path: str
) -> None:
    """Move replicas to another log dir of their broker."""
    chosen = _numbered(partitions)
    outcomes = await session.admin.move_replicas(broker, dict.fromkeys(chosen, path))
    session.output.show(OUTCOMES, _rows(outcomes, "begun"))


def _numbered(partitions: tuple[tuple[str, int | None], ...]) -> list[tuple[str, int]]:
    numbered = [(topic, number) for topic, number in partitions if number is not None]
    if len(numbered) != len(partitions):
        raise click.UsageError("each partition is written TOPIC:PARTITION")
    return numbered


def _rows(outcomes: dict[tuple[str, int], ClientError | None], done: str) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": number, "outcome": done}
        if error is None
        else {"topic": topic, "partition": number, "outcome": "failed", "error": name_of(error)}
        for (topic, number), error in outcomes.items()
    ]


# --- features ---------------------------------------------------------------------------------------------------


@COMMAND.group("features")
def features() -> None:
    """Levels of features: those that brokers support, and the finalized ones."""


@features.command("list")
@click.option("--broker", type=int, metavar="ID", help="Ask this broker.")
@asking(FEATURES)
async def list_features(session: Session, broker: int | None) -> None:
    """Show features."""
    session.output.show(
        FEATURES,
        [
            {
                "feature": feature.name,
                "min_level": feature.min_level,
                "max_level": feature.max_level,
                "finalized": feature.finalized_level,
            }
            for feature in await session.admin.features(broker)
        ],
    )


@features.command("update")
@click.argument("levels", nargs=-1, required=True, type=key_value, metavar="FEATURE=LEVEL...")
@click.option("--downgrade", is_flag=True, help="Allow lower levels; 0 switches one off.")
@click.option("--unsafe", is_flag=True, help="Allow lower levels that lose metadata.")
@click.option("--dry-run", is_flag=True, help="Validate only: the broker checks the change and makes none.")
@destructive
@asking(UPDATED)
async def update_features(
    session: Session,
    levels: tuple[tuple[str, str], ...],
    downgrade: bool,
    unsafe: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Finalize levels of features, for the whole cluster."""
    wrong = [level for _, level in levels if not level.isdecimal()]
    if wrong:
        raise click.UsageError(f"{wrong[0]!r} is no level: a number is expected")
    if not dry_run:
        confirm("set " + ", ".join(f"{name} to {level}" for name, level in levels), yes=yes)
    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE if downgrade else UPGRADE
    numbers = {name: int(level) for name, level in levels}
    outcomes = await session.admin.update_features(numbers, kind=kind, only_check=dry_run)
    done = "would be set" if dry_run else "set"
    session.output.show(
        UPDATED,
        [
            {"feature": name, "level": numbers.get(name), "outcome": done}
            if error is None
            else {"feature": name, "level": numbers.get(name), "outcome": "failed", "error": name_of(error)}
            for name, error in outcomes.items()
        ],
    )


# --- replicas ---------------------------------------------------------------------------------------------------


@COMMAND.group("reassign")
def reassign() -> None:
    """Moves of partitions to other brokers."""


def _placement(text: str) -> tuple[tuple[str, int], tuple[int, ...]]:
    """Read `TOPIC:PARTITION=1,2,3`. Raises click.BadParameter."""
    where, _, brokers = text.rpartition("=")
    topic, number = topic_partition(where)
    if number is None or not all(broker.isdecimal() for broker in brokers.split(",")):
        raise click.BadParameter(f"{text!r} is not TOPIC:PARTITION=BROKER,BROKER,...")
    return (topic, number), tuple(int(broker) for broker in brokers.split(","))


@reassign.command("start")
@click.argument("placements", nargs=-1, type=_placement, metavar="[TOPIC:PARTITION=BROKER,...]...")
@click.option(
    "--file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="A file of Kafka's kafka-reassign-partitions.",
)
@destructive
@asking(OUTCOMES)
async def start(
    session: Session,
    placements: tuple[tuple[tuple[str, int], tuple[int, ...]], ...],
    file: str | None,
    yes: bool,
) -> None:
    """Begin to move partitions; the first broker is to lead."""
    targets: dict[tuple[str, int], tuple[int, ...] | None] = dict(placements)
    if file is not None:
        targets |= _read_placements(file)
    if not targets:
        raise click.UsageError("give TOPIC:PARTITION=BROKER,... or --file")
    confirm(f"move {counted(len(targets), 'partition')}", yes=yes)
    session.output.show(OUTCOMES, _rows(await session.admin.reassign(targets), "begun"))


def _read_placements(file: str) -> dict[tuple[str, int], tuple[int, ...]]:
    """Read Kafka's JSON. Raises CommandError."""
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
        return {
            (placement["topic"], int(placement["partition"])): tuple(
                int(broker) for broker in placement["replicas"]
            )
            for placement in content["partitions"]
        }
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f'{file}: {{"partitions": [{{"topic": ..., "partition": ..., "replicas": [...]}}]}} is expected: {error!r}'
        ) from None


@reassign.command("list")
@asking(REASSIGNMENTS)
async def list_reassignments(session: Session) -> None:
    """Show the reassignments that are in progress."""
    reassignments = await session.admin.reassignments()
    session.output.show(
        REASSIGNMENTS,
        [
            {
                "topic": topic,
                "partition": number,
                "replicas": reassignment.replicas,
                "adding": reassignment.adding,
                "removing": reassignment.removing,
            }
            for (topic, number), reassignment in sorted(reassignments.items())
        ],
    )


@reassign.command("cancel")
@click.argument("partitions", nargs=-1, type=topic_partition, metavar="[TOPIC[:PARTITION]]...")
@destructive
@asking(OUTCOMES)
async def cancel(session: Session, partitions: tuple[tuple[str, int | None], ...], yes: bool) -> None:
    """Cancel moves: all, or of these."""
    moving = await session.admin.reassignments()
    cancelled = [
        partition
        for partition in moving
        if not partitions or partition in partitions or (partition[0], None) in partitions
    ]
    if not cancelled:
        raise CommandError("nothing of this is being moved; `barnabas brokers reassign list` shows what is")
    confirm(f"cancel {len(cancelled)} moves", yes=yes)
    outcomes = await session.admin.reassign(dict.fromkeys(cancelled))
    session.output.show(OUTCOMES, _rows(outcomes, "cancelled"))


@COMMAND.command("elect")
@click.argument("partitions", nargs=-1, type=topic_partition, metavar="[TOPIC:PARTITION]...")
@click.option(
    "--unclean", is_flag=True, help="Elect any live replica, even if records are lost (unclean election)."
)
@destructive
@asking(OUTCOMES)
async def elect(
    session: Session, partitions: tuple[tuple[str, int | None], ...], unclean: bool, yes: bool
) -> None:
    """Elect preferred leaders, of all partitions or of these."""
    if unclean:
        confirm("elect leaders that may lack records, which are lost then", yes=yes)
    outcomes = await session.admin.elect_leaders(
        _numbered(partitions) if partitions else None, kind=UNCLEAN if unclean else PREFERRED
    )
    session.output.show(OUTCOMES, _rows(outcomes, "leads"))


@COMMAND.command("unregister")
@click.argument("broker", type=int)
@destructive
@asking(BROKER_OUTCOMES)
async def unregister(session: Session, broker: int, yes: bool) -> None:
    """Unregister a broker that has stopped for good, in a cluster in KRaft mode."""
    confirm(f"unregister broker {broker}", yes=yes)
    await session.admin.unregister_broker(broker)
    session.output.show(BROKER_OUTCOMES, [{"broker": broker, "outcome": "unregistered"}])
