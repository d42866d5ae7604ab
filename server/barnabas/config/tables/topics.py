"""Topics as a whole: their creation, and policies about them.

The columns are explained in `barnabas.config.tables`.
"""

from __future__ import annotations

from barnabas.config.tables import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    ("num.partitions", "int", "1", "1..", "medium", "", "",
     "Partitions of a topic that does not say how many."),
    ("default.replication.factor", "int", "1", "", "medium", "", "",
     "Replicas of a topic that does not say how many."),
    ("auto.create.topics.enable", "boolean", "true", "", "high", "", "",
     "Whether asking for a topic's metadata makes it."),
    ("delete.topic.enable", "boolean", "true", "", "high", "", "",
     "Whether topics can be deleted."),
    ("create.topic.policy.class.name", "class", None, "", "low", "", "!jvm",
     "Class that may refuse new topics."),
    ("alter.config.policy.class.name", "class", None, "", "low", "", "!jvm",
     "Class that may refuse changed settings."),
)
# fmt: on
