"""The benchmarks, one script per question."""
