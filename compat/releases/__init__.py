"""A broker that is one release of Kafka, beside a real one of that release."""
