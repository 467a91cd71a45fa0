"""Jobs on the telemetry of peers: links, late events, workloads, and replays of recorded windows.

`segment_listing.py` finds the segments that peers wrote (`model/telemetry.py`), and `segment_reduction.py` reads them.
`updates.py` brings tables up to date with them, and `follow.py` does so as segments arrive. `recordings.py`,
`replays.py` and `recommendation.py` choose a strategy by these tables; `measured_network.py` gives them to `wend plan`.
"""
