"""The account at the end: the broker's committed records compared with the rows of the lake, key by key.

The rule: three independent sources must agree: the journals of the senders, a stock consumer of committed records, and
stock readers of Iceberg. No job of the pipeline takes part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from compat.kit.reading import read_to_end
from compat.spark.sender import ABORTED, COMMITTED, PARTITIONS, TOPIC, Journal

READ_SECONDS_MAX = 300
Place = tuple[int, int, str]
"""A record: its partition, offset and key."""


@dataclass
class Account:
    """Figures of a run; all except the first ten must be 0."""

    committed: int = 0
    """Records that a consumer of committed records gets."""
    rows: int = 0
    dead_letters: int = 0
    acknowledged: int = 0
    """Records of transactions that a sender knows to be committed."""
    taken_back: int = 0
    """Records of transactions that a sender has aborted."""
    undecided: int = 0
    """Records of senders that died in a transaction."""
    undecided_committed: int = 0
    in_the_log: int = 0
    """Records that a consumer gets which looks at no transaction."""
    transactions_committed: int = 0
    transactions_aborted: int = 0
    missing: int = 0
    """Committed records that are neither a row nor a dead letter."""
    too_many: int = 0
    """Rows and dead letters of records that were not committed."""
    doubled: int = 0
    acknowledged_missing: int = 0
    taken_back_there: int = 0
    problems: int = 0
    """Found by `audit --deep`."""

    @property
    def is_exact(self) -> bool:
        """Return whether nothing is missing, doubled or too many."""
        wrong = (
            self.missing, self.too_many, self.doubled, self.acknowledged_missing, self.taken_back_there, self.problems,
        )  # fmt: skip
        return not any(wrong) and self.committed == self.rows + self.dead_letters


def take(bootstrap: str, lake: Path, journals: Iterable[tuple[Path, str]]) -> Account:
    """Read all of it and compare."""
    journal = Journal()
    for path, name in journals:
        journal.read(path, name)
    committed = Counter(_consumed(bootstrap, "read_committed"))
    rows = Counter(_scanned(lake, f"barnabas.{TOPIC}", ("_topic_partition", "_offset", "_key")))
    dead = Counter(_scanned(lake, f"barnabas.{TOPIC}__dead", ("partition", "offset", "key")))
    held = rows + dead
    keys = {key for _, _, key in held}
    told, taken_back = journal.told[COMMITTED], journal.told[ABORTED]
    undecided = journal.told["begun"] - told - taken_back
    return Account(
        committed=committed.total(),
        rows=rows.total(),
        dead_letters=dead.total(),
        acknowledged=len(told),
        taken_back=len(taken_back),
        undecided=len(undecided),
        undecided_committed=len(undecided & keys),
        in_the_log=sum(1 for _ in _consumed(bootstrap, "read_uncommitted")),
        transactions_committed=journal.transactions[COMMITTED],
        transactions_aborted=journal.transactions[ABORTED],
        missing=(committed - held).total(),
        too_many=sum(count for place, count in held.items() if place not in committed),
        doubled=held.total() - len(keys),
        acknowledged_missing=len(told - keys),
        taken_back_there=len(taken_back & keys),
    )


def _consumed(bootstrap: str, isolation: str) -> Iterable[Place]:
    settings = {
        "bootstrap.servers": bootstrap, "group.id": "account", "isolation.level": isolation,
        "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0,
    }  # fmt: skip
    for message in read_to_end(settings, TOPIC, PARTITIONS, seconds=READ_SECONDS_MAX):
        assert message.error() is None, message.error()
        yield message.partition() or 0, message.offset() or 0, (message.key() or b"").decode()


def _scanned(lake: Path, name: str, columns: tuple[str, str, str]) -> Iterable[Place]:
    from pyiceberg.catalog import load_catalog

    table = load_catalog("barnabas", type="sql", uri=f"sqlite:///{lake}/catalog.db").load_table(name)
    scanned = table.scan(selected_fields=columns).to_arrow()
    for partition, offset, key in zip(*(scanned[column].to_pylist() for column in columns), strict=True):
        yield partition, offset, key.decode()
