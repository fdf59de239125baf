-- A run's store. Rows are only ever added: triggers refuse updates and deletions.

CREATE TABLE studies (
    id INTEGER PRIMARY KEY,
    study_id TEXT NOT NULL,
    study TEXT NOT NULL,           -- the resolved study, as JSON
    beacon_version TEXT NOT NULL,
    stored_at TEXT NOT NULL
);

CREATE TABLE instruments (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,            -- classifier or judge
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    stored_at TEXT NOT NULL,
    UNIQUE (kind, name, version)
);

CREATE TABLE responses (
    id INTEGER PRIMARY KEY,
    call_id TEXT NOT NULL,
    question_id TEXT NOT NULL,
    framing_id TEXT NOT NULL,
    model TEXT NOT NULL,
    repeat INTEGER NOT NULL,
    asked_at TEXT NOT NULL,
    status TEXT NOT NULL,
    is_settled INTEGER NOT NULL,   -- 0: resuming asks again
    kind TEXT NOT NULL,            -- reply or failure
    text TEXT,
    reasoning TEXT,
    finish_reason TEXT,
    is_declared_refusal INTEGER,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    logprobs TEXT,                 -- JSON
    served_model TEXT,
    provider TEXT,
    reason TEXT,
    message TEXT,
    http_status INTEGER,
    code TEXT,
    latency REAL NOT NULL,
    n_tries INTEGER NOT NULL
);

CREATE INDEX responses_by_call ON responses (call_id, is_settled);

CREATE TABLE labels (
    id INTEGER PRIMARY KEY,
    response_id INTEGER NOT NULL REFERENCES responses (id),
    instrument_id INTEGER NOT NULL REFERENCES instruments (id),
    category TEXT NOT NULL,
    layer TEXT NOT NULL,
    length INTEGER NOT NULL,
    confidence REAL,
    rule TEXT NOT NULL,
    evidence TEXT NOT NULL         -- JSON
);

CREATE INDEX labels_by_response ON labels (response_id, instrument_id);

-- The response that counts for each call: the newest.
CREATE VIEW current_responses AS
SELECT * FROM responses AS r
WHERE NOT EXISTS (SELECT 1 FROM responses AS n WHERE n.call_id = r.call_id AND n.id > r.id);

-- The label that counts for each response and instrument: the newest.
CREATE VIEW current_labels AS
SELECT * FROM labels AS l
WHERE NOT EXISTS (
    SELECT 1 FROM labels AS n
    WHERE n.response_id = l.response_id AND n.instrument_id = l.instrument_id AND n.id > l.id
);

CREATE TRIGGER studies_keep BEFORE UPDATE ON studies BEGIN SELECT RAISE(ABORT, 'studies are only added'); END;

CREATE TRIGGER studies_stay BEFORE DELETE ON studies BEGIN SELECT RAISE(ABORT, 'studies are only added'); END;

CREATE TRIGGER instruments_keep BEFORE UPDATE ON instruments BEGIN SELECT RAISE(ABORT, 'instruments are only added'); END;

CREATE TRIGGER instruments_stay BEFORE DELETE ON instruments BEGIN SELECT RAISE(ABORT, 'instruments are only added'); END;

CREATE TRIGGER responses_keep BEFORE UPDATE ON responses BEGIN SELECT RAISE(ABORT, 'responses are only added'); END;

CREATE TRIGGER responses_stay BEFORE DELETE ON responses BEGIN SELECT RAISE(ABORT, 'responses are only added'); END;

CREATE TRIGGER labels_keep BEFORE UPDATE ON labels BEGIN SELECT RAISE(ABORT, 'labels are only added'); END;

CREATE TRIGGER labels_stay BEFORE DELETE ON labels BEGIN SELECT RAISE(ABORT, 'labels are only added'); END;
