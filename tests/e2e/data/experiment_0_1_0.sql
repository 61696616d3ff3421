-- An experiment of two trials that nnilite 0.1.0 has run, with schema 2.
PRAGMA application_id = 1852729708;
PRAGMA user_version = 2;
CREATE TABLE attempts (
  trial INTEGER NOT NULL, number INTEGER NOT NULL, service TEXT NOT NULL, handle TEXT, state TEXT NOT NULL,
  started REAL, ended REAL, exit_code INTEGER, message TEXT NOT NULL, host TEXT NOT NULL, url TEXT NOT NULL,
  cancel TEXT NOT NULL, PRIMARY KEY (trial, number)) WITHOUT ROWID;
INSERT INTO "attempts" VALUES(0,0,'local','{"job": "nni-a72be7sw-nr242lqb-0", "directory": "/home/user/nni-experiments/a72be7sw/trials/nr242lqb/0", "pid": 1025, "start": "0962b9a0-c537-4b5f-a08b-61b5f37e9c2b/944508", "gpus": null}','SUCCEEDED',1.79534109134039545057e+09,1.79534109218963932987e+09,0,'','box','','');
INSERT INTO "attempts" VALUES(1,0,'local','{"job": "nni-a72be7sw-d3p0sthr-0", "directory": "/home/user/nni-experiments/a72be7sw/trials/d3p0sthr/0", "pid": 1201, "start": "0962b9a0-c537-4b5f-a08b-61b5f37e9c2b/944597", "gpus": null}','SUCCEEDED',1.79534109222527527805e+09,1.79534109271332764624e+09,0,'','box','','');
CREATE TABLE calls (
  number INTEGER PRIMARY KEY, kind TEXT NOT NULL, trial TEXT, parameter_id INTEGER, value TEXT, success INTEGER,
  customized INTEGER NOT NULL);
INSERT INTO "calls" VALUES(1,'generate','nr242lqb',0,NULL,NULL,0);
INSERT INTO "calls" VALUES(2,'result','nr242lqb',0,'0.6651448406717945',NULL,0);
INSERT INTO "calls" VALUES(3,'end','nr242lqb',0,NULL,1,0);
INSERT INTO "calls" VALUES(4,'generate','d3p0sthr',1,NULL,NULL,0);
INSERT INTO "calls" VALUES(5,'result','d3p0sthr',1,'0.3043923415306551',NULL,0);
INSERT INTO "calls" VALUES(6,'end','d3p0sthr',1,NULL,1,0);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('created','1795341088.1296687');
INSERT INTO "meta" VALUES('duration_s','4.389499664306641');
INSERT INTO "meta" VALUES('ended','1795341092.9060268');
INSERT INTO "meta" VALUES('id','a72be7sw');
INSERT INTO "meta" VALUES('limits','{"concurrency": 1, "max_trials": 2, "max_duration_s": null, "max_trial_duration_s": null}');
INSERT INTO "meta" VALUES('reason','maxTrialNumber (2) is reached');
INSERT INTO "meta" VALUES('secret','0000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO "meta" VALUES('state','STOPPED');
CREATE TABLE metrics (
  trial INTEGER NOT NULL, attempt INTEGER NOT NULL, idx INTEGER NOT NULL, final INTEGER NOT NULL,
  sequence INTEGER NOT NULL, value TEXT NOT NULL, time REAL NOT NULL);
INSERT INTO "metrics" VALUES(0,0,0,0,0,'0.33257242033589723',1.79534109213114833831e+09);
INSERT INTO "metrics" VALUES(0,0,1,1,0,'0.6651448406717945',1.79534109217148637764e+09);
INSERT INTO "metrics" VALUES(1,0,0,0,0,'0.15219617076532754',1.79534109261781907079e+09);
INSERT INTO "metrics" VALUES(1,0,1,1,0,'0.3043923415306551',1.7953410926178863049e+09);
CREATE TABLE removals (
  trial INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (trial, number)) WITHOUT ROWID;
CREATE TABLE trials (
  sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, parameter_id INTEGER, parameters TEXT NOT NULL,
  source TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, attempt INTEGER NOT NULL,
  created REAL NOT NULL, started REAL, ended REAL, value TEXT, score REAL, revision INTEGER NOT NULL);
INSERT INTO "trials" VALUES(0,'nr242lqb',0,'{"x": 0.6651448406717945}','algorithm','SUCCEEDED','',0,1.79534109120753502847e+09,1.79534109134039545057e+09,1.79534109218963932987e+09,'0.6651448406717945',6.65144840671794468356e-01,5);
INSERT INTO "trials" VALUES(1,'d3p0sthr',1,'{"x": 0.3043923415306551}','algorithm','SUCCEEDED','',0,1.79534109220846796036e+09,1.79534109222527527805e+09,1.79534109271332764624e+09,'0.3043923415306551',3.04392341530655086145e-01,10);
CREATE INDEX trials_state ON trials (state, score);
CREATE INDEX trials_score ON trials (score);
CREATE INDEX trials_revision ON trials (revision);
CREATE UNIQUE INDEX metrics_place ON metrics (trial, attempt, idx);
