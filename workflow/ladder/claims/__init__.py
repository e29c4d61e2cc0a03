"""The claims of the literature, decided from the tables."""
