"""The command line: one file for each command, and main.py, which runs them."""
