-- A database of schema 9, as it was made then. This file does not change.
PRAGMA application_id = 1852729708;
PRAGMA user_version = 9;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE trials (
  sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, parameter_id INTEGER, parameters TEXT NOT NULL,
  source TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, attempt INTEGER NOT NULL,
  created REAL NOT NULL, started REAL, ended REAL, value TEXT, score REAL, revision INTEGER NOT NULL,
  service TEXT NOT NULL DEFAULT '', cost REAL, attributes TEXT NOT NULL DEFAULT '{}',
  violates TEXT NOT NULL DEFAULT '');
CREATE INDEX trials_state ON trials (state, score);
CREATE INDEX trials_score ON trials (score);
CREATE INDEX trials_revision ON trials (revision);
CREATE TABLE attempts (
  trial INTEGER NOT NULL, number INTEGER NOT NULL, service TEXT NOT NULL, handle TEXT, state TEXT NOT NULL,
  started REAL, ended REAL, exit_code INTEGER, message TEXT NOT NULL, host TEXT NOT NULL, url TEXT NOT NULL,
  cancel TEXT NOT NULL, reported_end TEXT, cost REAL, run TEXT NOT NULL DEFAULT '',
  image TEXT NOT NULL DEFAULT '', PRIMARY KEY (trial, number)) WITHOUT ROWID;
CREATE TABLE metrics (
  trial INTEGER NOT NULL, attempt INTEGER NOT NULL, idx INTEGER NOT NULL, final INTEGER NOT NULL,
  sequence INTEGER NOT NULL, value TEXT NOT NULL, time REAL NOT NULL);
CREATE UNIQUE INDEX metrics_place ON metrics (trial, attempt, idx);
CREATE TABLE calls (
  number INTEGER PRIMARY KEY, kind TEXT NOT NULL, trial TEXT, parameter_id INTEGER, value TEXT, success INTEGER,
  customized INTEGER NOT NULL);

CREATE TABLE removals (
  trial INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (trial, number)) WITHOUT ROWID;

CREATE TABLE remarks (
  trial INTEGER PRIMARY KEY, tags TEXT NOT NULL, note TEXT NOT NULL, revision INTEGER NOT NULL UNIQUE);
CREATE TABLE attributes (
  trial INTEGER NOT NULL, attempt INTEGER NOT NULL, idx INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
  time REAL NOT NULL, PRIMARY KEY (trial, attempt, idx)) WITHOUT ROWID;
INSERT INTO meta VALUES ('id', 'abc'), ('created', '1.0'), ('state', 'RUNNING');
INSERT INTO trials (sequence, id, parameter_id, parameters, source, state, reason, attempt, created, started, ended, value, score, revision, service, cost, attributes, violates)
  VALUES (0, 't0', 0, '{"x": [1, null]}', 'algorithm', 'RUNNING', '', 1, 1.0, 2.5, NULL, NULL, NULL, 3, 'near', 1.5, '{"device": "cpu"}', '');
INSERT INTO attempts (trial, number, service, handle, state, started, ended, exit_code, message, host, url, cancel, cost, run, image)
  VALUES (0, 0, 'near', '{"pid": 7}', 'LOST', 2.0, 2.25, NULL, 'its worker was lost', 'h1', '', '', 1.5, '', ''),
         (0, 1, 'near', '{"pid": 8}', 'RUNNING', 2.5, NULL, NULL, '', 'h2', '', '', NULL, '0123456789abcdef', 'a/b@sha256:0');
INSERT INTO metrics VALUES (0, 1, 0, 0, 0, '{"default": 0.5}', 2.75);
INSERT INTO calls VALUES (1, 'generate', 't0', 0, NULL, NULL, 0);
INSERT INTO removals VALUES (0, 0);
INSERT INTO remarks VALUES (0, '["good"]', '', 1);
INSERT INTO attributes VALUES (0, 1, 1, 'device', '"cpu"', 2.8);
