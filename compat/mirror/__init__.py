"""Our mirror and MirrorMaker 2 between the same brokers, killed at the same times: lost, duplicate and late records."""
