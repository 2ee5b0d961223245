"""Documents and layers to one flag set; flag sets of several sources to one catalog."""
