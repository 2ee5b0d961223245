"""Files that are written from the program: the reference of the command line, and schemas for editors."""
