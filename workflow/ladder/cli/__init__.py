"""`ladder STEP`: the steps of the pipeline, as the workflow runs them and by hand."""
