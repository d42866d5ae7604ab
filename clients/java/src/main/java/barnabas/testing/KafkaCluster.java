package barnabas.testing;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * A cluster for the tests of a class: each test that has a parameter of type {@link KafkaBroker} gets it, and a cluster of its own.
 *
 * <pre>{@code
 * @KafkaCluster(brokers = 3)
 * class OrdersTest {
 *     @Test
 *     void ordersSurviveABroker(KafkaBroker cluster) { ... }
 * }
 * }</pre>
 */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(KafkaClusterExtension.class)
public @interface KafkaCluster {
    /** How many brokers there are. */
    int brokers() default 3;

    /** How many controllers there are; -1 for as many as {@code barnabas test-server} has by default. */
    int controllers() default -1;

    /** Further arguments of {@code barnabas test-server}. */
    String[] options() default {};
}
