"""Benchmarks: each file measures one cost of arkline, as ratios within one run."""
