"""Training of small networks: data sets, experiments, and runs that resume exactly."""
