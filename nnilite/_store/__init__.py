"""The experiment's SQLite database and the files next to it. What is not committed there has not happened.

database_file       makes, opens and migrates a database, and opens one to read only
resume_reader       reads back what the manager needs to continue
settings_of_config  the settings with which the rules begin, from a config
writer              the writing side: one transaction for each round of the engine
statements          the statements that write the engine's records
columns             the columns of trials and attempts, derived from the records
stored_values       which values the database may have, and how they are read
database_schema     all tables, and the steps that bring an older database up to date
shared              a database that several processes write in turn
database_identity   whether a database is still the file at its path, and how to write it back there
store_errors        turns errors of a database into one sentence with a cure
contents            checks a database that comes from elsewhere, column by column
integrity           recomputes the invariants of a finished experiment
copies              puts a database into an archive, and takes one out of it
async_store         the writer in a thread of its own, for the event loop
reader              answers questions about trials and metrics, by connections that only read
trial_remarks       what people have written about trials
tables              answers questions about many trials at once, inside SQLite
rows                makes records from rows of the database
notices             sentences on the results that a person should know
start_share         says where most of a trial's time goes into its start
recorded_workers    what trials ran with on their hosts
importance          the program that computes how much each parameter matters
results             the results of an experiment that need not be this one
"""
