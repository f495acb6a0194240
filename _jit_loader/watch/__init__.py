"""Watch mode: a warm process, and a fresh child of it at each save."""
