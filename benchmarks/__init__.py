"""Side by side with peers: every figure is a ratio measured in one run on one machine."""
