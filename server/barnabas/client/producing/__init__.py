"""Parts of the producer: settings, the buffer, partitions with their sequences, the sender, transactions."""
