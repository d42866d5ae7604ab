"""Replicas, leaders and communication between brokers.

The columns are explained in `barnabas.config.tables`.
"""

from __future__ import annotations

from barnabas.config.tables import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    ("min.insync.replicas", "int", "1", "1..", "high", "cluster", "",
     "Replicas that must be in sync for acks=all."),
    ("unclean.leader.election.enable", "boolean", "false", "", "high", "cluster", "cluster",
     "Whether a replica out of sync may become leader."),
    ("unclean.leader.election.interval.ms", "long", "300000", "1..", "medium", "internal", "controller",
     "How often the controller looks for partitions that need one."),
    ("auto.leader.rebalance.enable", "boolean", "true", "", "high", "", "cluster",
     "Whether leadership moves back to preferred replicas by itself."),
    ("leader.imbalance.check.interval.seconds", "long", "300", "1..", "high", "", "cluster",
     "How often the balance of leaders is looked at."),
    ("num.replica.fetchers", "int", "1", "1..", "high", "cluster", "cluster",
     "Connections to each other broker for fetching from it."),
    ("num.replica.alter.log.dirs.threads", "int", None, "", "high", "", "threads",
     "Threads that move replicas between log directories."),
    ("replica.fetch.backoff.ms", "int", "1000", "0..", "medium", "", "cluster",
     "How long a follower waits after a failed fetch."),
    ("replica.fetch.max.bytes", "int", "1048576", "0..", "medium", "", "cluster",
     "Bytes that a follower asks for per partition."),
    ("replica.fetch.min.bytes", "int", "1", "", "high", "", "cluster",
     "Bytes that a follower waits for."),
    ("replica.fetch.response.max.bytes", "int", "10485760", "0..", "medium", "", "cluster",
     "Bytes that a follower asks for in all."),
    ("replica.fetch.wait.max.ms", "int", "500", "", "high", "", "cluster",
     "How long a follower waits for records."),
    ("replica.high.watermark.checkpoint.interval.ms", "long", "5000", "", "high", "", "fixed",
     "How often high watermarks are written down; here together with the recovery points."),
    ("replica.lag.time.max.ms", "long", "30000", "", "high", "", "",
     "A follower that is behind for so long is no longer in sync."),
    ("replica.selector.class", "string", None, "", "medium", "", "cluster",
     "Class that picks the replica which a consumer reads from."),
    ("replica.socket.receive.buffer.bytes", "int", "65536", "", "high", "", "sockets",
     "Receive buffer of a follower's socket."),
    ("replica.socket.timeout.ms", "int", "30000", "", "high", "", "cluster",
     "How long a follower waits for an answer."),
    ("controlled.shutdown.enable", "boolean", "true", "", "medium", "", "cluster",
     "Whether leadership is handed over before a stop."),
    ("broker.heartbeat.interval.ms", "int", "2000", "", "medium", "", "quorum",
     "How often the broker tells the controller that it lives."),
    ("broker.session.timeout.ms", "int", "9000", "", "medium", "", "controller",
     "After how long without that the controller takes it for dead."),
    ("initial.broker.registration.timeout.ms", "int", "60000", "", "medium", "", "quorum",
     "How long the first registration may take."),
    ("controller.socket.timeout.ms", "int", "30000", "", "medium", "", "cluster",
     "How long the controller waits for a broker's answer."),
)
# fmt: on
