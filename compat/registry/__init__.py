"""Stock clients of schema registries against ours, kept by our broker or by Apache Kafka."""
