"""How something is built: nothing in this folder is imported by a hit."""
