-- 'GrJ1': tells a journal from any other program's SQLite file.
PRAGMA application_id = 0x47724a31;

CREATE TABLE streams (
    id       INTEGER PRIMARY KEY,
    name     TEXT NOT NULL UNIQUE,
    seq      INTEGER NOT NULL DEFAULT 0,
    reserved INTEGER NOT NULL DEFAULT 0,
    purged   INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE records (
    stream INTEGER NOT NULL REFERENCES streams (id),
    seq    INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    at     REAL NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (stream, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE commands (
    scope  TEXT NOT NULL,
    key    TEXT NOT NULL,
    stream INTEGER NOT NULL REFERENCES streams (id),
    digest BLOB NOT NULL,
    result BLOB NOT NULL,
    at     REAL NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX commands_by_stream ON commands (stream);

CREATE TABLE snapshots (
    stream INTEGER PRIMARY KEY REFERENCES streams (id),
    seq    INTEGER NOT NULL,
    data   BLOB NOT NULL
) STRICT;

-- Projections that the log was replayed into, so that a new one is recognised.
CREATE TABLE projections (
    name TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
