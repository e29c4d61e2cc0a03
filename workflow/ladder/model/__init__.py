"""Plain data that every floor shares. No CUDA, no pandas, no YAML."""
