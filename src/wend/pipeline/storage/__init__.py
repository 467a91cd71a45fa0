"""The files of jobs: tables that users bring, folders for results, and tables with versions."""
