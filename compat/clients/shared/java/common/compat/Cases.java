package compat;

import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.BooleanSupplier;

/** The cases of one client: bodies by name, and reasons for the cases that it lacks. */
final class Cases {
    /** A case; returns the detail to print. */
    interface Body {
        String run() throws Exception;
    }

    /** A step that may throw. */
    interface Step {
        void run() throws Exception;
    }

    /** The case cannot be asked of this client; the message says why. */
    static final class Skip extends RuntimeException {
        Skip(String reason) {
            super(reason);
        }
    }

    static final int COUNT = Integer.parseInt(environment("COMPAT_RECORDS", "10000"));
    static final int PARTITIONS = 3;
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final List<String> NAMES = List.of(
            "create-topic", "produce-none", "produce-gzip", "produce-snappy", "produce-lz4", "produce-zstd",
            "consume-group", "consume-group-848", "commit-resume", "broker-restart", "broker-kill",
            "read-by-timestamp", "acks", "idempotent-produce", "transactions", "admin", "interop", "delete-topic");
    private static final long TIMEOUT_MS =
            (long) (Double.parseDouble(environment("COMPAT_CASE_TIMEOUT_S", "90")) * 1000);

    final String bootstrap;
    private final String[] arguments;
    private final List<String> names;
    private final String client = environment("COMPAT_CLIENT", "client");
    private final String suffix = String.format("%09d", ThreadLocalRandom.current().nextInt(1_000_000_000));
    private final Map<String, Body> bodies = new HashMap<>();
    private final Map<String, String> lacks = new HashMap<>();

    Cases(String[] arguments) {
        this(arguments, NAMES);
    }

    /** Cases of these names instead of those that all clients have. */
    Cases(String[] arguments, List<String> names) {
        if (arguments.length == 0) {
            throw new IllegalArgumentException("usage: HOST:PORT [CASE...]");
        }
        this.bootstrap = arguments[0];
        this.arguments = arguments;
        this.names = names;
    }

    static String environment(String name, String otherwise) {
        return Objects.requireNonNullElse(System.getenv(name), otherwise);
    }

    /** Settings of TLS and logins, from the file that COMPAT_PROPERTIES names; empty without it. */
    static Properties security() {
        Properties found = new Properties();
        String file = environment("COMPAT_PROPERTIES", "");
        if (!file.isEmpty()) {
            try (Reader reader = Files.newBufferedReader(Path.of(file))) {
                found.load(reader);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
        return found;
    }

    /** A topic (or group) name that no other run uses. */
    String topic(String name) {
        return "compat-" + client + "-" + name + "-" + suffix;
    }

    void add(String name, Body body) {
        bodies.put(name, body);
    }

    void lack(String name, String reason) {
        lacks.put(name, reason);
    }

    /** Runs the cases named on the command line, or all. Ends the process: 1 when one failed. */
    void run() {
        List<String> wanted = List.of(arguments).subList(1, arguments.length);
        for (String name : names) {
            Check.ensure(bodies.containsKey(name) || lacks.containsKey(name), "neither there nor lacking: " + name);
        }
        if (!names.containsAll(wanted)) {
            System.err.println("no such case among " + wanted + "; there are " + names);
            System.exit(2);
        }
        boolean failed = false;
        for (String name : names) {
            if (wanted.isEmpty() || wanted.contains(name)) {
                failed |= run(name).equals("FAIL");
            }
        }
        System.out.flush();
        // Clients leave threads behind; a case that hangs must not hold the others up.
        Runtime.getRuntime().halt(failed ? 1 : 0);
    }

    private String run(String name) {
        String[] verdict = {"FAIL", "no end in " + TIMEOUT_MS / 1000 + " s"};
        long start = System.nanoTime();
        Thread thread = new Thread(() -> {
            String[] found = judge(name);
            System.arraycopy(found, 0, verdict, 0, 2);
        }, name);
        thread.setDaemon(true);
        thread.start();
        try {
            thread.join(TIMEOUT_MS);
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
        if (thread.isAlive()) {
            Thread.getAllStackTraces().forEach((other, frames) -> System.err.println(other + " " + List.of(frames)));
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        String took = verdict[0].equals("SKIP") ? "" : String.format(Locale.ROOT, " (%.1f s)", seconds);
        System.out.println(verdict[0] + " " + name + " " + verdict[1].strip().replaceAll("\\s+", " ") + took);
        return verdict[0];
    }

    private String[] judge(String name) {
        try {
            if (lacks.containsKey(name)) {
                throw new Skip(lacks.get(name));
            }
            return new String[] {"PASS", bodies.get(name).run()};
        } catch (Skip reason) {
            return new String[] {"SKIP", reason.getMessage()};
        } catch (Throwable error) {
            error.printStackTrace();
            return new String[] {"FAIL", error.toString()};
        }
    }

    /** Repeats {@code step} until {@code condition} holds; an AssertionError when it does not in time. */
    static void until(BooleanSupplier condition, Step step, String what) throws Exception {
        long deadline = System.nanoTime() + 40_000_000_000L;
        while (!condition.getAsBoolean()) {
            Check.ensure(System.nanoTime() < deadline, "not in 40 s: " + what);
            step.run();
        }
    }

    /** A step for {@link #until} where others do the work. */
    static void pause() throws InterruptedException {
        Thread.sleep(20);
    }

    /** What the matrix asks to read: topic, number of records, with headers. */
    record Foreign(String topic, int count, boolean headers) {}

    static List<Foreign> interopTopics() {
        String text = environment("COMPAT_TOPICS", "");
        if (text.isEmpty()) {
            throw new Skip("no topics of other clients were named in COMPAT_TOPICS");
        }
        List<Foreign> topics = new ArrayList<>();
        for (String entry : text.split(",")) {
            String[] parts = entry.split(":");
            topics.add(new Foreign(parts[0], Integer.parseInt(parts[1]), parts[2].equals("headers")));
        }
        return topics;
    }

    /** Has the broker stopped by SIGTERM ("term") or SIGKILL ("kill") and started again. */
    static void restartBroker(String how) throws Exception {
        String command = environment("COMPAT_RESTART", "");
        if (command.isEmpty()) {
            throw new Skip("no command that restarts the broker was given in COMPAT_RESTART");
        }
        Process process = new ProcessBuilder("sh", "-c", command + " " + how).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes());
        Check.ensure(process.waitFor() == 0, command + " " + how + ": " + said);
    }
}
