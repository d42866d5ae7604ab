"""The metadata of a KRaft quorum: its image, how records change it, and a quorum's log on disk.

The rule: Kafka's metadata records are the language of change; whatever keeps them (a quorum, a directory that is only
read) replays them here. `values`, `image`, `replay`, `transitions` and `quorum` are pure; `directory` reads files.
"""
