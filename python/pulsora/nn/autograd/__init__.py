"""Products, parameters and gradients of analog layers for torch's automatic differentiation."""
