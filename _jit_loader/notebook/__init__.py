"""Notebooks: changed ops and wrappers are reloaded before each cell; the cell magics."""
