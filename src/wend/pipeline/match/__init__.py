"""`wend data match`: tables of events and subscriptions, matched on Spark. `match_job.py` chooses a plan."""
