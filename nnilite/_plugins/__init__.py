"""From a plugin's name to its class.

lookup           finds plugins by their entry points, and imports the one that is asked for
name_synonyms    what other libraries call the plugins that are here
user_algorithms  tuners and assessors that the user has registered under a name
"""
