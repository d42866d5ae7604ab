"""The wire suite against several brokers, side by side."""
