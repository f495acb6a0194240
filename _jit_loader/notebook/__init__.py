"""Support for notebooks: the reload of ops and wrappers before each cell, and cell magics."""
