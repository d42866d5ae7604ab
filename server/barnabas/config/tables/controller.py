"""KRaft's controllers and their metadata log.

The columns are explained in `barnabas.config.tables`.
"""

from __future__ import annotations

from barnabas.config.tables import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    ("process.roles", "list", None, "broker|controller", "high", "", "!quorum",
     "What the node is: broker, controller or both."),
    ("controller.quorum.voters", "list", "", "", "high", "", "!quorum",
     "The controllers that vote, id@host:port."),
    ("controller.quorum.bootstrap.servers", "list", "", "", "high", "", "!quorum",
     "Addresses at which the controllers are found."),
    ("controller.quorum.append.linger.ms", "int", "25", "0..", "medium", "", "controller",
     "How long the leader gathers metadata records before it writes them."),
    ("controller.quorum.auto.join.enable", "boolean", "false", "", "low", "", "controller",
     "Whether a new controller joins the voters by itself."),
    ("controller.quorum.election.backoff.max.ms", "int", "1000", "0..", "high", "", "controller",
     "Longest wait after a lost election."),
    ("controller.quorum.election.timeout.ms", "int", "1000", "0..", "high", "", "controller",
     "How long an election may take."),
    ("controller.quorum.fetch.max.bytes", "int", "1048576", "1..", "low", "", "quorum",
     "Bytes of one fetch of metadata."),
    ("controller.quorum.fetch.snapshot.max.bytes", "int", "1048576", "1..", "low", "", "quorum",
     "Bytes of one fetch of a snapshot."),
    ("controller.quorum.fetch.timeout.ms", "int", "2000", "0..", "high", "", "quorum",
     "After how long without a fetch that works a new leader is sought."),
    ("controller.quorum.request.timeout.ms", "int", "2000", "0..", "medium", "", "quorum",
     "How long controllers wait for each other's answers."),
    ("controller.quorum.retry.backoff.ms", "int", "20", "0..", "low", "", "quorum",
     "How long they wait before they ask again."),
    ("controller.performance.always.log.threshold.ms", "long", "2000", "0..", "medium", "internal", "kraft",
     "Controller events that take longer are logged."),
    ("controller.performance.sample.period.ms", "long", "60000", "100..", "medium", "internal", "kraft",
     "How often the slowest controller event is logged."),
    ("sasl.mechanism.controller.protocol", "string", "GSSAPI", "", "high", "", "quorum",
     "SASL mechanism for talking to controllers."),
    ("metadata.log.dir", "string", None, "", "high", "", "quorum",
     "The directory of the metadata log."),
    ("metadata.log.segment.bytes", "int", "1073741824", "8388608..", "high", "", "quorum",
     "Size at which its segments roll."),
    ("metadata.log.segment.ms", "long", "604800000", "", "high", "", "quorum",
     "Age at which its segments roll."),
    ("metadata.log.max.record.bytes.between.snapshots", "long", "20971520", "1..", "high", "", "quorum",
     "Bytes of records after which a snapshot is made."),
    ("metadata.log.max.snapshot.interval.ms", "long", "3600000", "0..", "high", "", "quorum",
     "Time after which a snapshot is made; 0 for never."),
    ("metadata.max.idle.interval.ms", "int", "500", "0..", "low", "", "controller",
     "How often the leader writes a record that says nothing; 0 for never."),
    ("metadata.max.retention.bytes", "long", "104857600", "", "high", "", "quorum",
     "Bytes of metadata log and snapshots that are kept."),
    ("metadata.max.retention.ms", "long", "604800000", "", "high", "", "quorum",
     "How long they are kept."),
    ("internal.metadata.delete.delay.millis", "long", "60000", "", "low", "internal", "quorum",
     "How long deleted metadata segments stay on disk."),
    ("internal.metadata.log.segment.bytes", "int", None, "", "low", "internal", "quorum",
     "Size of metadata segments in tests."),
    ("internal.metadata.max.batch.size.in.bytes", "int", "8388608", "", "low", "internal", "quorum",
     "Largest batch of metadata records."),
    ("unstable.feature.versions.enable", "boolean", "false", "", "high", "internal", "kraft",
     "Whether feature levels that are still being worked on are accepted."),
)
# fmt: on
