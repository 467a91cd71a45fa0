"""Networks to run on: overlay graphs, real maps, paths, and how links fail."""
