"""From records to tables, and what is made of them: statistics, comparison, publication."""
