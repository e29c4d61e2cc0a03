"""From YAML documents to the model: kernels, sweeps, configuration and plans, each checked."""
