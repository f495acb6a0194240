"""Processes, threads and files of the operating system."""

import os


def is_set(name):
    """Returns whether an environment variable switches something on."""
    return os.environ.get(name, "") not in ("", "0")
