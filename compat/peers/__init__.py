"""Brokers of other projects, built from what their registries have, at pinned versions: franz-go's kfake and Tansu."""
