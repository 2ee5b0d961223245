"""Which source, files, ConfigMaps and Secrets a FlagSet is built from."""
