"""The only place that speaks kopf. No decisions: an event becomes something learnt, and keys that
are woken.
"""
