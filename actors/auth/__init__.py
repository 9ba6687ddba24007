"""Access keys: who may use this server's API, and for what. Knows no HTTP."""
