"""Sizes of a benchmark: its defaults, or those of the environment, as in its smoke test."""

import os


def option(name: str, default: int) -> int:
    """`ARKLINE_BENCH_NAME`, or `default`."""
    return int(os.environ.get(f"ARKLINE_BENCH_{name}", default))


def options(name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """`ARKLINE_BENCH_NAME` as comma-separated numbers, or `default`."""
    text = os.environ.get(f"ARKLINE_BENCH_{name}", "")
    return tuple(map(int, text.split(","))) if text else default


ROUNDS = option("ROUNDS", 3)
