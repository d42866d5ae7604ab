"""Stock clients of Confluent's REST proxy against our REST API, in front of our broker and of Apache Kafka."""
