"""Adapters of the stages' ports: objects to which the installation grants rights one by one."""
