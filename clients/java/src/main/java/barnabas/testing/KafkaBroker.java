package barnabas.testing;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A Kafka broker for the tests of a class; each test begins with what the broker was started with.
 *
 * <pre>{@code @RegisterExtension static final KafkaBroker BROKER = new KafkaBroker("--topic", "orders:3");}</pre>
 *
 * The arguments are those of {@code barnabas test-server}. It ends with the class, and with this process at the latest.
 * With {@code --brokers} it is a cluster, and each test gets another one.
 */
public final class KafkaBroker implements BeforeAllCallback, BeforeEachCallback, AfterAllCallback {
    private static final String WAY_OUT =
            "install it with `pip install barnabas`, or name the command in BARNABAS_COMMAND, as `uvx barnabas`";
    private final List<String> command = new ArrayList<>();
    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private Process process;
    private String bootstrap;
    private String controlUrl;
    private String ready;
    private boolean wasUsed;
    private final boolean isCluster;

    public KafkaBroker(String... options) {
        this(System.getenv().getOrDefault("BARNABAS_COMMAND", "barnabas"), options);
    }

    KafkaBroker(String barnabas, String[] options) {
        command.addAll(List.of(barnabas.trim().split("\\s+")));
        command.add("test-server");
        command.addAll(List.of(options));
        isCluster = List.of(options).contains("--brokers") || List.of(options).contains("--controllers");
    }

    /** {@code host:port} for {@code bootstrap.servers}, of a cluster with commas between; of another one in each test. */
    public String bootstrap() {
        return bootstrap;
    }

    /**
     * Settings of a client that logs in as a user, alice or bob, of a broker that was started with {@code --security}; with
     * {@code SSL} alone it shows that user's certificate.
     */
    public Map<String, Object> clientSettings(String user) {
        Map<String, Object> settings = new HashMap<>();
        String protocol = field(ready, "protocol");
        settings.put("bootstrap.servers", bootstrap);
        settings.put("security.protocol", protocol);
        if (protocol.startsWith("SASL")) {
            settings.put("sasl.mechanism", field(ready, "mechanism"));
            settings.put("sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required username=\""
                    + user + "\" password=\"" + field(ready.substring(ready.indexOf("passwords")), user) + "\";");
        }
        if (protocol.endsWith("SSL")) {
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", field(ready, "ca"));
        }
        if (protocol.equals("SSL")) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", field(ready.substring(ready.indexOf("certificates")), user));
        }
        return settings;
    }

    /** Where the control API is. */
    public String controlUrl() {
        return controlUrl;
    }

    /** Sends a request to the control API, as {@code control("GET", "/v1/topics", null)}; returns its answer, JSON. */
    public String control(String method, String path, String json) {
        HttpRequest.BodyPublisher body =
                json == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(json);
        HttpRequest request = HttpRequest.newBuilder(URI.create(controlUrl + path)).method(method, body).build();
        try {
            HttpResponse<String> response = http.send(request, HttpResponse.BodyHandlers.ofString());
            if (response.statusCode() >= 400) {
                throw new IllegalStateException(method + " " + path + ": " + response.body().trim());
            }
            return response.body();
        } catch (IOException error) {
            throw new IllegalStateException("the broker does not answer", error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(error);
        }
    }

    /** Waits up to ten seconds until a topic holds at least so many records. */
    public void waitForRecords(String topic, int count) {
        control("GET", "/v1/wait/records?topic=" + encoded(topic) + "&count=" + count, null);
    }

    /** Waits up to ten seconds until a group is stable. */
    public void waitForGroup(String group) {
        control("GET", "/v1/wait/group?group=" + encoded(group), null);
    }

    /** Keeps what the broker holds now under a name. */
    public void snapshot(String name) {
        control("POST", "/v1/snapshots", "{\"name\": \"" + name + "\"}");
    }

    /** Goes back to a snapshot; connections are cut, the address stays. */
    public void restore(String name) {
        control("POST", "/v1/snapshots/" + encoded(name) + "/restore", null);
    }

    /** Goes back to what the broker was started with; done before each test. */
    public void reset() {
        control("POST", "/v1/reset", null);
    }

    /** Returns the nodes of a cluster and its active controller, JSON. */
    public String cluster() {
        return control("GET", "/v1/cluster", null);
    }

    /** Ends a node as {@code kill -9} does; it stays down. */
    public void killNode(int node) {
        onNode(node, "kill", null);
    }

    /** Stops a node cleanly, which moves what it leads to others first; it stays down. */
    public void stopNode(int node) {
        onNode(node, "stop", null);
    }

    /** Starts a node that is down, at its old address, and waits until it serves. */
    public void startNode(int node) {
        onNode(node, "start", null);
    }

    /** Cuts a node off from all others: nothing arrives in either direction; if so asked, from clients too. */
    public void isolateNode(int node, boolean clients) {
        onNode(node, "isolate", "{\"clients\": " + clients + "}");
    }

    /** Lets a node that was cut off reach the others again. */
    public void rejoinNode(int node) {
        onNode(node, "rejoin", null);
    }

    private void onNode(int node, String act, String json) {
        control("POST", "/v1/cluster/nodes/" + node + "/" + act, json);
    }

    /** Makes a topic in a cluster and waits until all brokers know its leaders. */
    public void createTopic(String topic, int partitions) {
        control("POST", "/v1/cluster/topics/" + encoded(topic), "{\"partitions\": " + partitions + "}");
    }

    /** Returns the leader of a partition, -1 for none. */
    public int leader(String topic, int partition) {
        String json = control("GET", "/v1/cluster/leaders/" + encoded(topic), null);
        Matcher leader = Pattern.compile("\"" + partition + "\": (-?\\d+)").matcher(json);
        return leader.find() ? Integer.parseInt(leader.group(1)) : -1;
    }

    /** Has a replica lead a partition, by Kafka's own requests, and waits until all brokers know it. */
    public void moveLeader(String topic, int partition, int leader) {
        control("PUT", "/v1/cluster/leaders/" + encoded(topic) + "/" + partition, "{\"leader\": " + leader + "}");
    }

    @Override
    public void beforeAll(ExtensionContext context) throws IOException {
        start();
    }

    /** Starts the broker, where no JUnit does it; {@link #stop} ends it. */
    public void start() throws IOException {
        try {
            process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        } catch (IOException error) {
            throw new IOException("cannot start the broker: " + error.getMessage() + "; " + WAY_OUT, error);
        }
        String line = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8)).readLine();
        if (line == null) {
            throw new IllegalStateException("the broker did not start; standard error says why");
        }
        ready = line;
        bootstrap = field(line, "bootstrap_servers");
        controlUrl = field(line, "control_url");
    }

    @Override
    public void beforeEach(ExtensionContext context) throws IOException, InterruptedException {
        if (wasUsed && isCluster) {
            afterAll(context);
            start();
        } else if (wasUsed) {
            reset();
        }
        wasUsed = true;
    }

    @Override
    public void afterAll(ExtensionContext context) throws IOException, InterruptedException {
        stop();
    }

    /** Ends the broker. */
    public void stop() throws IOException, InterruptedException {
        process.getOutputStream().close(); // whereupon it ends
        process.waitFor();
    }

    /** As {@link #bootstrap}, by the name that Testcontainers has for it. */
    public String getBootstrapServers() {
        return bootstrap;
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    private static String field(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": \"([^\"]*)\"").matcher(json);
        if (!found.find()) {
            throw new IllegalStateException("no " + name + " in " + json);
        }
        return found.group(1);
    }
}
