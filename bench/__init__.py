"""The performance harness: Barnabas side by side with its peers, in one run, as ratios."""
