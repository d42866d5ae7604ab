package compat;

import java.util.List;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.errors.TopicExistsException;

/** Topics made and deleted by the admin client. */
final class Topics {
    private Topics() {}

    static void create(Modern client, String topic) throws Exception {
        try (AdminClient admin = AdminClient.create(client.settings())) {
            admin.createTopics(List.of(new NewTopic(topic, Cases.PARTITIONS, (short) 1))).all().get();
        }
    }

    static String createAgain(Modern client, String topic) throws Exception {
        try {
            create(client, topic);
            throw new AssertionError("a topic was created twice");
        } catch (ExecutionException error) {
            Check.ensure(error.getCause() instanceof TopicExistsException, "creating it again: " + error.getCause());
        }
        return "";
    }

    static String delete(Modern client) throws Exception {
        String topic = client.create(client.cases.topic("delete-topic"));
        client.produce(topic, 0, 100);
        try (AdminClient admin = AdminClient.create(client.settings())) {
            admin.deleteTopics(List.of(topic)).all().get();
            boolean[] listed = {true};
            Cases.until(() -> !listed[0], () -> listed[0] = admin.listTopics().names().get().contains(topic),
                    "the topic is gone");
        }
        return "gone";
    }
}
