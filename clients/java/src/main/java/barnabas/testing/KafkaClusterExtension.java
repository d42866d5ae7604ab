package barnabas.testing;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/** What {@link KafkaCluster} does. */
final class KafkaClusterExtension implements BeforeAllCallback, BeforeEachCallback, AfterAllCallback, ParameterResolver {
    private KafkaBroker cluster;

    @Override
    public void beforeAll(ExtensionContext context) throws IOException {
        KafkaCluster wanted = context.getRequiredTestClass().getAnnotation(KafkaCluster.class);
        List<String> options = new ArrayList<>(List.of("--brokers", String.valueOf(wanted.brokers())));
        if (wanted.controllers() >= 0) {
            options.addAll(List.of("--controllers", String.valueOf(wanted.controllers())));
        }
        options.addAll(List.of(wanted.options()));
        cluster = new KafkaBroker(options.toArray(String[]::new));
        cluster.beforeAll(context);
    }

    @Override
    public void beforeEach(ExtensionContext context) throws IOException, InterruptedException {
        cluster.beforeEach(context);
    }

    @Override
    public void afterAll(ExtensionContext context) throws IOException, InterruptedException {
        if (cluster != null) {
            cluster.afterAll(context);
        }
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == KafkaBroker.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return cluster;
    }
}
