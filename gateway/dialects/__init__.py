"""Wire forms of the event log: one module per dialect."""
