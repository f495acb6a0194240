"""The inputs of a build: the files that compilers read, and the places where they looked."""
