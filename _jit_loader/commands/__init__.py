"""The commands of the command line, one file each; command_line.py says what a command is."""
