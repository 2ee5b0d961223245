"""What stages share about the objects that deliver flag sets: who claims a name, who serves, how far it has
come. Pure.
"""
