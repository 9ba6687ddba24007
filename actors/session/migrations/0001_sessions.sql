CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    title TEXT NOT NULL DEFAULT '',
    working_dir TEXT NOT NULL DEFAULT '',
    num_messages INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    starred INTEGER NOT NULL DEFAULT 0,
    owner TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX sessions_by_age ON sessions (created_at DESC, id);
CREATE INDEX sessions_running ON sessions (owner) WHERE owner <> '';
CREATE INDEX sessions_by_title ON sessions (title) WHERE title <> '';
