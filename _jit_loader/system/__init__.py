"""Processes, threads and files of the operating system."""
