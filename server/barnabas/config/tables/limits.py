"""Quotas, metrics and telemetry.

The columns are explained in `barnabas.config.tables`.
"""

from __future__ import annotations

from barnabas.config.tables import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    ("quota.window.num", "int", "11", "1..", "low", "", "",
     "Samples that client quotas remember."),
    ("quota.window.size.seconds", "int", "1", "1..", "low", "", "",
     "Length of one such sample."),
    ("controller.quota.window.num", "int", "11", "1..", "low", "", "",
     "Samples that the quota on controller changes remembers."),
    ("controller.quota.window.size.seconds", "int", "1", "1..", "low", "", "",
     "Length of one such sample."),
    ("replication.quota.window.num", "int", "11", "1..", "low", "", "cluster",
     "Samples that the quota on replication remembers."),
    ("replication.quota.window.size.seconds", "int", "1", "1..", "low", "", "cluster",
     "Length of one such sample."),
    ("alter.log.dirs.replication.quota.window.num", "int", "11", "1..", "low", "", "quotas",
     "Samples that the quota on moves between log directories remembers."),
    ("alter.log.dirs.replication.quota.window.size.seconds", "int", "1", "1..", "low", "", "quotas",
     "Length of one such sample."),
    ("client.quota.callback.class", "class", None, "", "low", "", "!jvm",
     "Class that decides on quotas."),
    ("metric.reporters", "list", "org.apache.kafka.common.metrics.JmxReporter", "", "low", "cluster", "metrics",
     "Classes that publish metrics."),
    ("metrics.num.samples", "int", "2", "1..", "low", "", "metrics",
     "Samples from which a metric is computed."),
    ("metrics.sample.window.ms", "long", "30000", "1..", "low", "", "metrics",
     "Length of one such sample."),
    ("metrics.recording.level", "string", "INFO", "", "low", "", "metrics",
     "How fine metrics are recorded."),
    ("kafka.metrics.reporters", "list", "", "", "low", "", "metrics",
     "Classes that publish the older metrics."),
    ("kafka.metrics.polling.interval.secs", "int", "10", "1..", "low", "", "metrics",
     "How often these are asked."),
    ("telemetry.max.bytes", "int", "1048576", "1..", "low", "", "",
     "Largest telemetry that a client may push (KIP-714)."),
    ("leader.replication.throttled.rate", "long", None, "0..", "medium", "cluster", "cluster",
     "Bytes in a second that leaders send to throttled replicas."),
    ("follower.replication.throttled.rate", "long", None, "0..", "medium", "cluster", "cluster",
     "Bytes in a second that throttled replicas fetch."),
    ("replica.alter.log.dirs.io.max.bytes.per.second", "long", None, "0..", "medium", "cluster", "",
     "Bytes in a second that moves between log directories take."),
)
# fmt: on
