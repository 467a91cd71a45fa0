"""Who wants an event, inside the cluster and in others, and the trees between clusters."""
