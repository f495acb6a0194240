"""Watch mode: a warm process forks a child that runs the script, again after each save."""
