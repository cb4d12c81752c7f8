"""The same numbered shards worked off in this process, as share i of n, or on the machines of a Ray cluster."""
