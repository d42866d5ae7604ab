"""The admin client of kafka-python 3."""

from __future__ import annotations

from harness import becomes
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType


def administer(connection: dict[str, object], topic: str, group: str) -> str:
    """Change a topic of 300 records and three partitions, and a group without members."""
    admin = KafkaAdminClient(**connection)

    def configs() -> dict[str, object]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        described = admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return {name: entry["value"] for name, entry in described.items()}

    before = configs()
    assert before["cleanup.policy"] == "delete", before
    assert before["retention.ms"] == "604800000", before
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "12345678"})])
    becomes(configs, {**before, "retention.ms": "12345678"}, "a changed topic config")
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": ("DELETE", None)})])
    becomes(configs, before, "the config that was set back")

    admin.create_partitions({topic: 5})
    becomes(lambda: len(admin.describe_topics([topic])[0]["partitions"]), 5, "new partitions")

    partition = TopicPartition(topic, 1)
    consumer = KafkaConsumer(**connection)
    end = consumer.end_offsets([partition])[partition]
    admin.delete_records({partition: end - 2})
    assert consumer.beginning_offsets([partition]) == {partition: end - 2}
    consumer.close()

    assert group in {entry["group_id"] for entry in admin.list_groups()}
    state = admin.describe_groups([group])[group]
    assert state["group_state"] == "Empty", state
    assert sum(place.offset for place in admin.list_group_offsets(group)[group].values()) > 0
    admin.delete_groups([group])
    assert group not in {entry["group_id"] for entry in admin.list_groups()}
    brokers = admin.describe_cluster()["brokers"]
    assert len(brokers) >= 1, brokers
    admin.close()
    return "configs, partitions, records, groups, cluster"
