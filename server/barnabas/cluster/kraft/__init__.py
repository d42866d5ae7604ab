"""The metadata of a KRaft quorum: its image, how records change it, and a quorum's log on disk.

The rule: Kafka's metadata records are the language of change; a quorum's log and a directory that is only read are both
replayed here. `values`, `image`, `replay`, `transitions` and `quorum` are pure; `directory` reads files.
"""
