"""The claims of the literature, decided from the tables: a module for each source, a function for each claim."""
