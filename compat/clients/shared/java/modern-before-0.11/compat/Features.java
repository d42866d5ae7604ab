package compat;

/** What the releases before 0.11 lack. */
final class Features {
    private final Modern client;

    Features(Modern client) {
        this.client = client;
    }

    void register() {
        Cases cases = client.cases;
        cases.lack("produce-zstd", "the Java client knows zstd since 2.1");
        cases.lack("consume-group-848", "the Java client knows KIP-848 since 3.7");
        cases.lack("idempotent-produce", "the Java client has an idempotent producer since 0.11");
        cases.lack("transactions", "the Java client has transactions since 0.11");
        cases.lack("admin", "the Java client has an admin client since 0.11");
        cases.lack("delete-topic", "the Java client has an admin client since 0.11");
    }
}
