import org.apache.kafka.common.config.ConfigDef;

/** Prints each setting of a broker: name, type, default, importance, and whether Kafka keeps it out of its documentation. */
public class Settings {
    public static void main(String[] arguments) {
        ConfigDef definition = kafka.server.KafkaConfig.configDef();
        definition.configKeys().values().stream()
            .sorted((one, other) -> one.name.compareTo(other.name))
            .forEach(key -> System.out.println(String.join("\t",
                key.name,
                key.type.toString().toLowerCase(),
                key.hasDefault() ? shown(key) : "(required)",
                key.importance.toString().toLowerCase(),
                key.internalConfig ? "internal" : "")));
    }

    private static String shown(ConfigDef.ConfigKey key) {
        return key.defaultValue == null ? "(null)" : ConfigDef.convertToString(key.defaultValue, key.type);
    }
}
