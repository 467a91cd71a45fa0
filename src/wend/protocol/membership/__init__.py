"""Who my neighbours are: overlays, one file each, and what their peers say to each other. `table.py` lists them."""
