"""The evaluator beside an application: from a pod's annotations to the pod with its sidecar. Pure."""
