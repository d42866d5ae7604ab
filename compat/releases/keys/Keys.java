import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.Map;
import java.util.TreeMap;

/** Prints `key:first-last` for each API that the kafka-clients on the class path publish for brokers; any release from 0.9 on. */
public class Keys {
    public static void main(String[] arguments) throws Exception {
        Class<?> kinds = Class.forName("org.apache.kafka.common.protocol.ApiKeys");
        Map<Integer, int[]> found = new TreeMap<>();
        for (Object kind : published(kinds)) {
            int id = ((Number) kinds.getField("id").get(kind)).intValue();
            int[] versions = versions(kinds, kind, id);
            if (versions != null) {
                found.put(id, versions);
            }
        }
        StringBuilder text = new StringBuilder();
        for (Map.Entry<Integer, int[]> row : found.entrySet()) {
            int[] versions = row.getValue();
            text.append(row.getKey()).append(':').append(versions[0]);
            if (versions[1] != versions[0]) {
                text.append('-').append(versions[1]);
            }
            text.append(' ');
        }
        System.out.println(text.toString().trim());
    }

    /** The APIs of a broker: on ZooKeeper where the release knows such, on KRaft later, all of them before there was a difference. */
    private static Object[] published(Class<?> kinds) throws Exception {
        Class<?> listeners;
        try {
            listeners = Class.forName("org.apache.kafka.common.message.ApiMessageType$ListenerType");
        } catch (ClassNotFoundException old) {
            return enabled(kinds);
        }
        Object broker = null;
        for (String name : new String[] {"ZK_BROKER", "BROKER"}) {
            for (Object one : listeners.getEnumConstants()) {
                if (broker == null && one.toString().equals(name)) {
                    broker = one;
                }
            }
        }
        return ((Collection<?>) kinds.getMethod("apisForListener", listeners).invoke(null, broker)).toArray();
    }

    private static Object[] enabled(Class<?> kinds) throws Exception {
        try {
            return ((Collection<?>) kinds.getMethod("enabledApis").invoke(null)).toArray();
        } catch (NoSuchMethodException older) {
            return kinds.getEnumConstants();
        }
    }

    private static int[] versions(Class<?> kinds, Object kind, int id) throws Exception {
        try {
            int first = ((Number) kinds.getMethod("oldestVersion").invoke(kind)).intValue();
            int last;
            try {
                last = ((Number) kinds.getMethod("latestVersion", boolean.class).invoke(kind, false)).intValue();
            } catch (NoSuchMethodException older) {
                last = ((Number) kinds.getMethod("latestVersion").invoke(kind)).intValue();
            }
            return first <= last ? new int[] {first, last} : null;
        } catch (NoSuchMethodException older) {
            Class<?> protocol = Class.forName("org.apache.kafka.common.protocol.Protocol");
            Object schemas = Array.get(protocol.getField("REQUESTS").get(null), id);
            if (schemas == null) {
                return null;
            }
            int first = 0;
            while (first < Array.getLength(schemas) && Array.get(schemas, first) == null) {
                first++;
            }
            return new int[] {first, Array.getLength(schemas) - 1};
        }
    }
}
