"""What evaluator and proxy both need to speak flagd.sync: the hub, the payload, the messages, the
servicer.
"""
