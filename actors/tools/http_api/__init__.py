"""HTTP endpoints as tools: declared calls, how a request is built from arguments, and what the model reads back."""
