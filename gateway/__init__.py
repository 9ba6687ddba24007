"""Every way in: HTTP, SSE, WebSocket and the command line. Importing this package imports nothing else."""
