package compat;

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What 1.1 has and lacks: its admin client knows topics and configs, but no groups. */
final class Features {
    private final Modern client;

    Features(Modern client) {
        this.client = client;
    }

    void register() {
        Cases cases = client.cases;
        cases.lack("produce-zstd", "the Java client knows zstd since 2.1");
        cases.lack("consume-group-848", "the Java client knows KIP-848 since 3.7");
        cases.add("transactions", () -> Transactional.run(client));
        cases.add("admin", this::administer);
        cases.add("delete-topic", () -> Topics.delete(client));
    }

    private String administer() throws Exception {
        String topic = client.create(client.cases.topic("admin"));
        client.produce(topic, 0, 300);
        try (AdminClient admin = AdminClient.create(client.settings());
                KafkaConsumer<byte[], byte[]> consumer = client.consumer()) {
            changeConfigs(admin, topic);
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
            var described = admin.describeTopics(List.of(topic)).all();
            Check.ensure(described.get().get(topic).partitions().size() == 5, "partitions: " + described.get());
            TopicPartition partition = new TopicPartition(topic, 1);
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(end - 2))).all().get();
            long start = consumer.beginningOffsets(List.of(partition)).get(partition);
            Check.ensure(start == end - 2, "starts at " + start + ", ends at " + end);
            Check.ensure(!admin.describeCluster().clusterId().get().isEmpty(), "no cluster id");
            int node = admin.describeCluster().nodes().get().iterator().next().id();
            var replicas = admin.describeLogDirs(List.of(node)).all().get().get(node).values().iterator().next();
            Check.ensure(replicas.replicaInfos.containsKey(partition), "the partition is in no log dir");
        }
        return "configs, partitions, records, cluster, log dirs";
    }

    private static void changeConfigs(AdminClient admin, String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Check.ensure(value(admin, resource).equals("604800000"), "retention.ms " + value(admin, resource));
        for (String retention : List.of("12345678", "604800000")) {
            Config change = new Config(List.of(new ConfigEntry("retention.ms", retention)));
            admin.alterConfigs(Map.of(resource, change)).all().get();
            boolean[] changed = {false};
            Cases.until(() -> changed[0], () -> changed[0] = value(admin, resource).equals(retention), retention);
        }
    }

    private static String value(AdminClient admin, ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value();
    }
}
