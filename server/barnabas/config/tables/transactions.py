"""Transaction coordinator.

The columns are explained in `barnabas.config.tables`.
"""

from __future__ import annotations

from barnabas.config.tables import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    ("transaction.max.timeout.ms", "int", "900000", "1..", "high", "", "",
     "Longest timeout that a transaction may have."),
    ("transactional.id.expiration.ms", "int", "604800000", "1..", "high", "", "",
     "How long an idle transactional id is kept."),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "int", "10000", "1..", "low", "", "fixed",
     "How often overdue transactions are looked for; here each has a timer of its own."),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", "int", "3600000", "1..", "low", "", "",
     "How often transactional ids that are no longer used are looked for."),
    ("transaction.partition.verification.enable", "boolean", "true", "", "low", "cluster", "",
     "Whether a partition must be in the transaction before records of it are taken."),
    ("transaction.two.phase.commit.enable", "boolean", "false", "", "low", "", "",
     "Whether transactions without a timeout are allowed (KIP-939)."),
    ("transaction.state.log.load.buffer.size", "int", "5242880", "1..", "high", "", "fixed",
     "Bytes read at once when transactions are loaded."),
    ("transaction.state.log.min.isr", "int", "2", "1..", "high", "", "!cluster",
     "Replicas of __transaction_state that must be in sync."),
    ("transaction.state.log.num.partitions", "int", "50", "1..", "high", "", "",
     "Partitions of __transaction_state."),
    ("transaction.state.log.replication.factor", "short", "3", "1..", "high", "", "",
     "Replicas of __transaction_state; at most the number of brokers."),
    ("transaction.state.log.segment.bytes", "int", "104857600", "1..", "high", "", "",
     "Segment size of __transaction_state."),
    ("add.partitions.to.txn.retry.backoff.ms", "int", "20", "1..", "high", "", "fixed",
     "How long the broker waits before it asks again to add a partition."),
    ("add.partitions.to.txn.retry.backoff.max.ms", "int", "100", "0..", "high", "", "fixed",
     "How long it goes on asking."),
)
# fmt: on
