"""One script a claim: `python -m benchmarks.NAME` prints a table and writes `benchmarks/results/NAME.json`.

`benchmarks/claims.py` has the claims, and docs/performance.md holds the results against them.
"""
