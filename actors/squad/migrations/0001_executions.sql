CREATE TABLE executions (
    id TEXT PRIMARY KEY,
    squad_id TEXT NOT NULL,
    request TEXT NOT NULL,
    auto_approve INTEGER NOT NULL DEFAULT 0,
    workspace TEXT NOT NULL DEFAULT '',
    phase TEXT NOT NULL,
    live INTEGER NOT NULL DEFAULT 1,
    driven INTEGER NOT NULL DEFAULT 1,
    kept INTEGER NOT NULL DEFAULT 0,
    plan_id TEXT NOT NULL DEFAULT '',
    wave INTEGER NOT NULL DEFAULT 0,
    waves INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    paused_by TEXT NOT NULL DEFAULT '',
    owner TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    completed_at REAL NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX executions_by_squad ON executions (squad_id, created_at DESC, id);
CREATE INDEX executions_live ON executions (squad_id) WHERE live;
CREATE INDEX executions_open ON executions (id) WHERE NOT kept;
CREATE INDEX executions_by_plan ON executions (plan_id) WHERE live;
