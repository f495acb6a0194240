"""Writes pages from the results: docs/performance.md, the README's figures and others."""
