"""Controllers of Apache Kafka and of Barnabas, side by side on their own listener."""
