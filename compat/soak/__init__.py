"""Long runs in which clients and brokers are killed at random, and nothing may be lost, doubled or half done."""
