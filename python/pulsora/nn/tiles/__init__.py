"""The tiles that hold the weights of one layer."""
