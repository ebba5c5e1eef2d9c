"""What arkline costs: each file measures one thing, as ratios within one run."""
