"""From a plan to records: verifying, timing, counting."""
