"""The pages written from the results alone: docs/performance.md and the README's figures, too."""
