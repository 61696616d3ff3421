"""What trial code uses besides parameters and metrics. Each module is loaded with its first use.

attribute_setting  sets what a trial says about itself
metric_entries     keeps entries of a reported dict that JSON does not have
safe_text          values and errors of the user's code as text
worker_facts       says what trials run with on a host: Python and packages
artifacts          tables, images, figures and texts of a trial, as files
artifact_values    what becomes of a value: the kind and the bytes of its file
"""
