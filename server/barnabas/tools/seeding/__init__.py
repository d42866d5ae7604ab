"""Topics, records, groups, ACLs, users and quotas that a broker begins with: read from text, and put into the broker."""
