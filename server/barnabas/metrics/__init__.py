"""Metrics of the broker, and how they are shown to Prometheus and to whatever else reads that format."""
