"""The systems that `wend lab bench` measures: one file per system, the table in `system_table.py`, configurations in
`configs/`."""
