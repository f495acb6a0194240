"""The pages written from the results alone: docs/performance.md, the README's figures and others."""
