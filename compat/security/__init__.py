"""Rights of users: answers to requests that are refused, here and on Apache Kafka with its StandardAuthorizer."""
