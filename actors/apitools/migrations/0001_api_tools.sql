CREATE TABLE api_documents (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL DEFAULT 0,
    stream TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE INDEX api_documents_by_age ON api_documents (kind, created_at, id);
CREATE INDEX api_documents_by_stream ON api_documents (stream);
CREATE TABLE api_calls (
    id TEXT PRIMARY KEY,
    stream TEXT NOT NULL,
    session_id TEXT NOT NULL,
    tool_id TEXT NOT NULL,
    state TEXT NOT NULL,
    owner TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    data BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX api_calls_by_session ON api_calls (session_id, started_at, id);
CREATE INDEX api_calls_by_tool ON api_calls (tool_id, started_at, id);
CREATE INDEX api_calls_pending ON api_calls (owner) WHERE state = 'pending';
CREATE INDEX api_calls_by_stream ON api_calls (stream);
