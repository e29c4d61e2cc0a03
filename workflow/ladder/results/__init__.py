"""From records to tables, and what is asked of them: statistics, comparison, history, publication."""
