"""One view in one epoch: plan, inputs, compute, commit, publish, maintain."""
