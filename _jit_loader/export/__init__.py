"""Builds for machines without a compiler: a folder that is a read-only cache, or a wheel."""
