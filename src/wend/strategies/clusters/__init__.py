"""Sites of many peers behind coordinators: multicast inside a cluster, trees or adaptive routes between clusters."""
