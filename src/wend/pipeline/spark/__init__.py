"""How jobs reach Spark: sessions, submission to a cluster, the size and the progress of tasks, and their errors."""
