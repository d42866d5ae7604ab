"""Several brokers with their controllers on one machine, started, watched and stopped by one command."""
