"""A crash-safe file for the records that must outlive the process."""
