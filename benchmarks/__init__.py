"""The benchmarks, one script per question; `python -m benchmarks` runs them all."""
