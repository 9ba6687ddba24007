"""The command line: one file per command. Only ``main`` is loaded before it is known which command runs."""
