"""Metrics of the broker, in the format of Prometheus."""
