"""The key of a build: the request, the toolchain, the machine, and the contents of files."""
