"""One module a step: configure(parser) adds its arguments, run(arguments) does it and returns the exit code."""
