"""Standing orders: which flag sets the pods of a workload follow, by what the cluster says of them."""
