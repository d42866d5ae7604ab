"""Logins and TLS handshakes side by side with Apache Kafka: each mechanism, right and wrong, by what a client sees."""
