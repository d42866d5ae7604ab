"""Our mirror and MirrorMaker 2 between the same brokers, killed at the same times: what is lost, doubled, late."""
