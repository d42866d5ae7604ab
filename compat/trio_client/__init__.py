"""The Trio client against Apache Kafka and Barnabas, alone and in groups with members of librdkafka."""
