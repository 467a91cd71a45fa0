"""What jobs read and write: files of users, folders for results, and tables with versions."""
