"""Loads on a real Spark cluster whose processes are killed, with the broker, under transactional producers."""
