"""A notebook: before each cell runs, what has changed is built and put in force; cell magics."""
