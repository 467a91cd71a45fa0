"""A crash-safe file for the records that must survive the process."""
