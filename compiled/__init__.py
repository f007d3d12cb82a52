"""The pipelines and components as YAML, ready to upload; `make golden` regenerates them."""
