"""The door for the official Copilot SDKs: JSON-RPC over TCP or standard input and output."""
