"""Loads on a real Spark cluster; its processes are killed, with the broker, under transactional producers."""
