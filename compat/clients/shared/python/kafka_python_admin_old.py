"""The admin client of kafka-python 1.4 and 2.0, which hands out bare responses."""

from __future__ import annotations

from harness import becomes
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions


def administer(connection: dict[str, object], topic: str, group: str) -> str:
    """Change a topic of 300 records and three partitions, and a group without members."""
    admin = KafkaAdminClient(**connection)

    def configs() -> dict[str, str]:
        responses = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        # 2.0 answers with a list, one for each broker asked; 1.4 with the response itself.
        response = responses[0] if isinstance(responses, list) else responses
        error, message, _, name, entries = response.resources[0]
        assert (error, name) == (0, topic), (error, message)
        return {entry[0]: entry[1] for entry in entries}

    before = configs()
    assert before["cleanup.policy"] == "delete", before
    assert before["retention.ms"] == "604800000", before
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "12345678"})])
    becomes(configs, {**before, "retention.ms": "12345678"}, "a changed topic config")

    admin.create_partitions({topic: NewPartitions(5)})
    consumer = KafkaConsumer(**connection)

    def partitions() -> set[int]:
        consumer.topics()  # asks for fresh metadata
        return consumer.partitions_for_topic(topic)

    becomes(partitions, {0, 1, 2, 3, 4}, "new partitions")
    consumer.close()
    assert group in {entry[0] for entry in admin.list_consumer_groups()}
    described = admin.describe_consumer_groups([group])[0]
    assert described[0] == 0, described
    assert described[2] == "Empty", described
    offsets = admin.list_consumer_group_offsets(group)
    assert sum(place.offset for place in offsets.values()) > 0, offsets
    done = "configs, partitions, groups"
    if hasattr(admin, "delete_consumer_groups"):
        # The second of each pair is an error class; NoError is 0.
        assert [error.errno for _, error in admin.delete_consumer_groups([group])] == [0]
        assert group not in {entry[0] for entry in admin.list_consumer_groups()}
        done += ", group deleted"
    admin.close()
    return done
