"""python bench.py: microseconds for one call, best of five rounds of 200,000."""

import timeit

from duration import parse_duration

for text in ("90s", "1d 2h 3m 4s"):
    best = min(timeit.repeat(lambda: parse_duration(text), number=200_000, repeat=5))
    print(f"{text!r}: {best / 0.2:.2f} µs")
