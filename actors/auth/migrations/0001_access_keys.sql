CREATE TABLE access_keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    created_at REAL NOT NULL
) WITHOUT ROWID;
