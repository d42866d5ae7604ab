import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import org.apache.kafka.common.config.ConfigDef;

/** Answers each line `kind, name, value` with `+` where Kafka takes the value, `-` where it refuses it, `?` for an unknown name. */
public class Validators {
    private static final String[] BROKER = {"kafka.server.KafkaConfig", "kafka.server.KafkaConfig$"};
    private static final String[] TOPIC = {
        "org.apache.kafka.storage.internals.log.LogConfig", "kafka.log.LogConfig", "kafka.log.LogConfig$"};

    public static void main(String[] arguments) throws Exception {
        ConfigDef broker = definition(BROKER);
        ConfigDef topic = definition(TOPIC);
        StringBuilder answers = new StringBuilder();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            answers.append(answer(parts[0].equals("topic") ? topic : broker, parts[1], parts[2])).append('\n');
        }
        System.out.print(answers);
    }

    private static char answer(ConfigDef definition, String name, String text) {
        ConfigDef.ConfigKey key = definition.configKeys().get(name);
        if (key == null) {
            return '?';
        }
        try {
            Object value = ConfigDef.parseType(name, text, key.type);
            if (key.validator != null) {
                key.validator.ensureValid(name, value);
            }
            return '+';
        } catch (RuntimeException refused) {
            return '-';
        }
    }

    private static ConfigDef definition(String[] classes) throws Exception {
        for (String name : classes) {
            Class<?> found;
            try {
                found = Class.forName(name);
            } catch (ClassNotFoundException absent) {
                continue;
            }
            Object module = null;
            try {
                module = found.getField("MODULE$").get(null);
            } catch (NoSuchFieldException plain) {
                // its members are static
            }
            for (Method method : found.getDeclaredMethods()) {
                if (method.getName().contains("configDef") && method.getParameterCount() == 0
                        && ConfigDef.class.isAssignableFrom(method.getReturnType())) {
                    method.setAccessible(true);
                    return (ConfigDef) method.invoke(module);
                }
            }
            for (Field field : found.getDeclaredFields()) {
                if (ConfigDef.class.isAssignableFrom(field.getType())) {
                    field.setAccessible(true);
                    return (ConfigDef) field.get(module);
                }
            }
        }
        throw new IllegalStateException("no definition of settings in " + String.join(", ", classes));
    }
}
