"""What `wend lab bench` measures: one file per system, the table in `table.py`, configurations in `configs/`."""
