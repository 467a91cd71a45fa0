"""Many runs on Spark, each executed once: simulations and trials, their results, and the means over seeds."""
