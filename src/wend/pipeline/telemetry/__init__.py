"""Jobs on what peers saw: links, late events, workloads, and replays of what was recorded.

`segments.py` reads what peers wrote (`model/telemetry.py`), `jobs.py` brings tables up to date with it, and `follow.py`
does so as segments arrive. `recordings.py`, `replays.py` and `recommendation.py` decide on strategies by these tables,
`measured.py` gives them to `wend plan`.
"""
