"""Who is in my cluster, who speaks for it, and whom it knows elsewhere."""
