"""Parts of the consumer: settings, positions, fetching, offsets, and membership in groups of both protocols."""
