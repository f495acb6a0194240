"""One script per question, listed in scripts.py: python -m benchmarks runs them all."""
