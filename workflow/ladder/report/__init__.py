"""The report and its figures, drawn from the tables."""
