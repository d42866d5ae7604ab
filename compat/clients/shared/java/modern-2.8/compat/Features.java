package compat;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What the releases since 2.8 have and lack. */
final class Features {
    private final Modern client;

    Features(Modern client) {
        this.client = client;
    }

    void register() {
        Cases cases = client.cases;
        if (!ConsumerConfig.configNames().contains("group.protocol")) {
            cases.lack("consume-group-848", "the Java client knows KIP-848 since 3.7");
        }
        cases.add("transactions", () -> Transactional.run(client));
        cases.add("admin", this::administer);
        cases.add("delete-topic", () -> Topics.delete(client));
    }

    private String administer() throws Exception {
        String topic = client.create(client.cases.topic("admin"));
        client.produce(topic, 0, 300);
        try (AdminClient admin = AdminClient.create(client.settings())) {
            changeConfigs(admin, topic);
            deleteRecords(admin, new TopicPartition(topic, 1));
            groups(admin, topic);
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
            int[] count = {0};
            try (KafkaConsumer<byte[], byte[]> consumer = client.consumer()) {
                Cases.until(() -> count[0] == 5, () -> count[0] = consumer.partitionsFor(topic).size(), "five partitions");
            }
            cluster(admin, new TopicPartition(topic, 1));
        }
        return "configs, records, groups, partitions, cluster, log dirs";
    }

    private static void changeConfigs(AdminClient admin, String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        ConfigEntry before = retention(admin, resource);
        Check.ensure(before.value().equals("604800000") && before.isDefault(), "retention.ms " + before);
        ConfigEntry changed = new ConfigEntry("retention.ms", "12345678");
        for (AlterConfigOp.OpType type : List.of(AlterConfigOp.OpType.SET, AlterConfigOp.OpType.DELETE)) {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(changed, type)))).all().get();
            String wanted = type == AlterConfigOp.OpType.SET ? changed.value() : before.value();
            boolean[] done = {false};
            Cases.until(() -> done[0], () -> done[0] = retention(admin, resource).value().equals(wanted),
                    "retention.ms " + wanted);
        }
    }

    private static ConfigEntry retention(AdminClient admin, ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms");
    }

    private static void deleteRecords(AdminClient admin, TopicPartition partition) throws Exception {
        long end = offset(admin, partition, OffsetSpec.latest());
        admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(end - 2))).all().get();
        long start = offset(admin, partition, OffsetSpec.earliest());
        Check.ensure(start == end - 2, "starts at " + start + ", ends at " + end);
    }

    private static long offset(AdminClient admin, TopicPartition partition, OffsetSpec which) throws Exception {
        return admin.listOffsets(Map.of(partition, which)).all().get().get(partition).offset();
    }

    private void groups(AdminClient admin, String topic) throws Exception {
        String group = client.cases.topic("admin-group");
        Check check = new Check(true);
        try (KafkaConsumer<byte[], byte[]> consumer = client.consumer("group.id", group)) {
            consumer.subscribe(List.of(topic));
            Cases.until(() -> check.count() > 0, () -> Modern.poll(consumer).forEach(check::add), "something read");
            consumer.commitSync();
            var members = describe(admin, group).members();
            Check.ensure(members.size() == 1, "members " + members);
            Set<TopicPartition> assigned = members.iterator().next().assignment().topicPartitions();
            Check.ensure(assigned.equals(consumer.assignment()), "described: " + assigned);
        }
        Check.ensure(groupNames(admin).contains(group), "the group is not listed");
        Check.ensure(describe(admin, group).members().isEmpty(), "the group still has members");
        Map<TopicPartition, OffsetAndMetadata> offsets =
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        Check.ensure(offsets.size() == Cases.PARTITIONS, "committed: " + offsets);
        TopicPartition partition = new TopicPartition(topic, 0);
        admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(7, "by hand"))).all().get();
        OffsetAndMetadata altered =
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(partition);
        Check.ensure(altered.offset() == 7 && altered.metadata().equals("by hand"), "altered: " + altered);
        admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
        admin.deleteConsumerGroups(List.of(group)).all().get();
        Check.ensure(!groupNames(admin).contains(group), "the group is still listed");
    }

    private static ConsumerGroupDescription describe(AdminClient admin, String group)
            throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
    }

    private static Set<String> groupNames(AdminClient admin) throws Exception {
        return admin.listConsumerGroups().all().get().stream()
                .map(group -> group.groupId()).collect(Collectors.toSet());
    }

    private static void cluster(AdminClient admin, TopicPartition partition) throws Exception {
        Check.ensure(!admin.describeCluster().clusterId().get().isEmpty(), "no cluster id");
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        var dirs = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values();
        Check.ensure(dirs.stream().anyMatch(dir -> dir.replicaInfos().containsKey(partition)),
                "the partition is in no log dir");
    }
}
