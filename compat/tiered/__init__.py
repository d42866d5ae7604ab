"""Tiered storage beside Kafka's own classes, and beside Aiven's plug-in: `python -m compat.tiered`, see the README."""
