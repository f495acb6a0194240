"""One module per question: python -m benchmarks.bandwidth, and so on, from the project's root."""
