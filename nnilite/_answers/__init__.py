"""Questions to a manager and their answers. The REST interface and the store share these and do not know each other.

backend       the interface of a manager, as the REST interface needs it
queries       questions and answers about an experiment and its trials
bulk_queries  questions and answers about many trials at once
late_request  requests whose sender no longer waits
changes       hands changes to all subscribers
"""
