"""Exports builds for machines without a compiler: as a read-only cache folder or as a wheel."""
