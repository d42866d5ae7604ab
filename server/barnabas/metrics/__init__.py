"""What the broker counts, and how it is shown to Prometheus and to whatever else reads that format."""
